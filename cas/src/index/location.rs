//! A place of a chunk, as it is kept in RocksDB.

use bytes::{Buf, BufMut};
use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, PackId, Row, StoredId};

use super::PendingPack;

/// The stored id is the chunk id: raw frames.
const SAME_ID: u8 = 1;
/// A base follows.
const HAS_BASE: u8 = 2;
const FIXED_LEN: usize = 32;

/// One place where a chunk lies.
///
/// In RocksDB 32 to 96 bytes: `[pack: 16][offset: 4][stored_len: 4][plain_len: 4][kind][codec][depth][flags]`, then the
/// stored id unless it is the chunk's, then the base if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The pack.
    pub pack: PackId,
    /// Where in the pack, and what the frame's header says.
    pub row: Row,
}

impl Location {
    pub(super) fn encode_list(places: &[Self]) -> Vec<u8> {
        let mut out = Vec::with_capacity(places.len() * FIXED_LEN);
        for place in places {
            place.encode(&mut out);
        }
        out
    }

    pub(super) fn decode_list(id: ChunkId, mut input: &[u8]) -> Option<Vec<Self>> {
        let mut places = Vec::new();
        while !input.is_empty() {
            places.push(Self::decode(id, &mut input)?);
        }
        Some(places)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let header = &self.row.header;
        let same = header.stored_id.as_bytes() == header.id.as_bytes();
        let flags = if same { SAME_ID } else { 0 } | if header.base.is_some() { HAS_BASE } else { 0 };
        out.put_slice(self.pack.as_bytes());
        out.put_u32_le(self.row.offset);
        out.put_u32_le(header.stored_len);
        out.put_u32_le(header.plain_len);
        out.put_slice(&[header.kind as u8, header.codec as u8, header.depth, flags]);
        if !same {
            out.put_slice(header.stored_id.as_bytes());
        }
        if let Some(base) = header.base {
            out.put_slice(base.as_bytes());
        }
    }

    fn decode(id: ChunkId, input: &mut &[u8]) -> Option<Self> {
        let pack = PackId::from_bytes(take(input)?);
        let offset = u32::from_le_bytes(take(input)?);
        let stored_len = u32::from_le_bytes(take(input)?);
        let plain_len = u32::from_le_bytes(take(input)?);
        let [kind, codec, depth, flags] = take(input)?;
        let (kind, codec) = (FrameKind::from_u8(kind)?, Codec::from_u8(codec)?);
        let stored_id = if flags & SAME_ID != 0 { *id.as_bytes() } else { take(input)? };
        let stored_id = StoredId::from_bytes(stored_id);
        let base = if flags & HAS_BASE != 0 { Some(ChunkId::from_bytes(take(input)?)) } else { None };
        let header = FrameHeader { kind, codec, depth, id, base, stored_id, plain_len, stored_len };
        Some(Self { pack, row: Row { offset, header } })
    }
}

/// `[length: 8]`, then for each row `[id: 32]` and its place.
pub(super) fn encode_pending(pack: &PendingPack) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + pack.rows.len() * 64);
    out.put_u64_le(pack.len);
    for row in &pack.rows {
        out.put_slice(row.id().as_bytes());
        Location { pack: pack.id, row: *row }.encode(&mut out);
    }
    out
}

pub(super) fn decode_pending(id: PackId, mut input: &[u8]) -> Option<PendingPack> {
    let len = u64::from_le_bytes(take(&mut input)?);
    let mut rows = Vec::new();
    while !input.is_empty() {
        let chunk = ChunkId::from_bytes(take(&mut input)?);
        rows.push(Location::decode(chunk, &mut input)?.row);
    }
    Some(PendingPack { id, len, rows })
}

/// The next `N` bytes, if they are there.
pub(super) fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    input.try_copy_to_slice(&mut bytes).ok()?;
    Some(bytes)
}

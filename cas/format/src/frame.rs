//! A chunk as stored: a fixed header and the payload.

use bytes::{Buf, BufMut};

use crate::{ChunkId, DecodeError, Limits, StoredId};

/// First bytes of every frame, so that a scanner finds frames in a damaged pack.
pub const FRAME_MAGIC: [u8; 8] = *b"FBYFRAME";
/// Length of the fixed frame header in bytes.
pub const FRAME_HEADER_LEN: usize = 128;
/// Payloads of raw frames of [`RAW_ALIGNMENT_FROM`] bytes and more start at multiples of this in their pack, so that
/// direct reads, reflinks and pinned buffers need no copy. 4 KiB is the page and sector size of every target.
pub const RAW_ALIGNMENT: u32 = 4096;
/// From this plain length on, raw payloads are aligned; below it the padding would cost more than 6 %.
pub const RAW_ALIGNMENT_FROM: u32 = 64 << 10;

/// Format version in the header.
const FORMAT: u8 = 0;
/// Chains of bases are no longer than this: a reader that has nothing reads at most so many frames besides the wanted one.
pub const PATCH_DEPTH_MAX: u8 = 8;
const WHAT: &str = "frame header";

/// What the plain bytes of a frame are. A reader asks for a kind and refuses every other: data can never be read as a
/// manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Bytes of a file.
    Data = 1,
    /// A [`crate::TreeNode`].
    Tree = 2,
    /// A [`crate::ListNode`].
    List = 3,
    /// A [`crate::Snapshot`].
    Snapshot = 4,
    /// A DSSE envelope.
    Envelope = 5,
}

impl FrameKind {
    /// The kind with this number on disk.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Data,
            2 => Self::Tree,
            3 => Self::List,
            4 => Self::Snapshot,
            5 => Self::Envelope,
            _ => return None,
        })
    }

    /// Name for messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Tree => "tree",
            Self::List => "list",
            Self::Snapshot => "snapshot",
            Self::Envelope => "envelope",
        }
    }
}

/// How the payload of a frame encodes the plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    /// The plain bytes themselves.
    Raw = 0,
    /// One zstd frame (RFC 8878) that declares its content size.
    Zstd = 1,
    /// Pieces of the base chunk and bytes put between them; of data only. `[copies: 4][literal_len: 4]`, little-endian,
    /// then for each copy `[offset in the base: 4][length: 4][literal bytes behind it: 4]`, then the literals: as they are
    /// if exactly `literal_len` bytes are left, else as one zstd frame that declares them.
    Patch = 2,
}

impl Codec {
    /// The codec with this number on disk.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Raw,
            1 => Self::Zstd,
            2 => Self::Patch,
            _ => return None,
        })
    }
}

/// The fixed header before a payload, little-endian:
///
/// ```text
/// [magic: 8][format: 1][kind: 1][codec: 1][depth: 1][flags: 4, zero]
/// [id: 32][base id: 32, zero if none][stored id: 32]
/// [plain_len: 4][stored_len: 4][zero: 4][crc32c of the 124 bytes before: 4]
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the plain bytes are.
    pub kind: FrameKind,
    /// How the payload encodes them.
    pub codec: Codec,
    /// Length of the chain of bases below this frame; 0 without a base, at most 8.
    pub depth: u8,
    /// Name of the chunk: BLAKE3 of the plain bytes.
    pub id: ChunkId,
    /// The chunk the payload is a patch of.
    pub base: Option<ChunkId>,
    /// BLAKE3 of the payload.
    pub stored_id: StoredId,
    /// Plain length in bytes.
    pub plain_len: u32,
    /// Payload length in bytes.
    pub stored_len: u32,
}

impl FrameHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        let mut out = &mut bytes[..];
        out.put_slice(&FRAME_MAGIC);
        out.put_slice(&[FORMAT, self.kind as u8, self.codec as u8, self.depth]);
        out.put_u32_le(0);
        out.put_slice(self.id.as_bytes());
        out.put_slice(self.base.map_or([0; 32], |base| *base.as_bytes()).as_slice());
        out.put_slice(self.stored_id.as_bytes());
        out.put_u32_le(self.plain_len);
        out.put_u32_le(self.stored_len);
        let crc = crc32c::crc32c(&bytes[..FRAME_HEADER_LEN - 4]);
        bytes[FRAME_HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the first [`FRAME_HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for every byte that is not as [`Self::encode`] writes it, and for lengths over
    /// [`Limits::DEFAULT`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(mut input) = bytes.get(..FRAME_HEADER_LEN) else {
            return Err(DecodeError::Truncated {
                what: WHAT,
                needed: FRAME_HEADER_LEN as u64,
                len: bytes.len() as u64,
            });
        };
        if input[..8] != FRAME_MAGIC {
            return Err(DecodeError::Magic { what: WHAT });
        }
        if crc32c::crc32c(&input[..FRAME_HEADER_LEN - 4]).to_le_bytes() != input[FRAME_HEADER_LEN - 4..] {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        input.advance(8);
        let format = input.get_u8();
        if format != FORMAT {
            return Err(DecodeError::Version { what: WHAT, found: format, supported: FORMAT });
        }
        let field = |field, value: u64| DecodeError::Field { what: WHAT, field, value };
        let kind = input.get_u8();
        let kind = FrameKind::from_u8(kind).ok_or_else(|| field("kind", kind.into()))?;
        let codec = input.get_u8();
        let codec = Codec::from_u8(codec).ok_or_else(|| field("codec", codec.into()))?;
        let depth = input.get_u8();
        let flags = input.get_u32_le();
        if flags != 0 {
            return Err(field("flags", flags.into()));
        }
        let id = ChunkId::from_bytes(take(&mut input));
        let base = Some(take(&mut input)).filter(|base| *base != [0; 32]).map(ChunkId::from_bytes);
        let stored_id = StoredId::from_bytes(take(&mut input));
        let header = Self {
            kind,
            codec,
            depth,
            id,
            base,
            stored_id,
            plain_len: input.get_u32_le(),
            stored_len: input.get_u32_le(),
        };
        let reserved = input.get_u32_le();
        if reserved != 0 {
            return Err(field("reserved bytes", reserved.into()));
        }
        check_shape(WHAT, &header)?;
        Ok(header)
    }

    /// Bytes of header and payload together.
    #[must_use]
    pub const fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + self.stored_len as u64
    }
}

/// What header and index row have in common: lengths within limits, depth and base in agreement, raw means equal
/// lengths and equal ids.
pub(crate) fn check_shape(what: &'static str, header: &FrameHeader) -> Result<(), DecodeError> {
    let field = |field, value: u64| Err(DecodeError::Field { what, field, value });
    let limit = Limits::DEFAULT.chunk_bytes;
    if header.plain_len > limit {
        return field("plain length", header.plain_len.into());
    }
    if header.stored_len > limit {
        return field("stored length", header.stored_len.into());
    }
    if header.depth > PATCH_DEPTH_MAX || (header.depth == 0) != header.base.is_none() {
        return field("depth", header.depth.into());
    }
    if header.codec == Codec::Raw
        && (header.plain_len != header.stored_len || header.id.as_bytes() != header.stored_id.as_bytes())
    {
        return field("raw length or id", header.stored_len.into());
    }
    // A patch has a base, and nothing else has. One that saves nothing is never written, nor one of itself.
    let is_patch = header.codec == Codec::Patch;
    if header.base.is_some() != is_patch || header.base == Some(header.id) {
        return field("base", header.depth.into());
    }
    if is_patch && (header.kind != FrameKind::Data || header.stored_len >= header.plain_len) {
        return field("patch", header.stored_len.into());
    }
    Ok(())
}

/// The next `N` bytes; the caller has checked that they are there.
pub(crate) fn take<const N: usize>(input: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    input.copy_to_slice(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Data,
            codec: Codec::Zstd,
            depth: 0,
            id: ChunkId::of(b"plain"),
            base: None,
            stored_id: StoredId::of(b"stored"),
            plain_len: 5,
            stored_len: 6,
        }
    }

    fn patch() -> FrameHeader {
        FrameHeader { codec: Codec::Patch, depth: 1, base: Some(ChunkId::of(b"b")), stored_len: 4, ..header() }
    }

    #[test]
    fn a_patch_comes_back() {
        assert_eq!(FrameHeader::decode(&patch().encode()).unwrap(), patch());
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let bytes = header().encode();
        for bit in 0..FRAME_HEADER_LEN * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bad).is_err(), "bit {bit}");
        }
        assert_eq!(FrameHeader::decode(&bytes).unwrap(), header());
        assert!(FrameHeader::decode(&bytes[..FRAME_HEADER_LEN - 1]).is_err());
    }

    #[test]
    fn shapes_that_contradict_themselves_are_refused() {
        for bad in [
            FrameHeader { codec: Codec::Raw, ..header() },
            FrameHeader { depth: 9, base: Some(ChunkId::of(b"b")), ..header() },
            FrameHeader { depth: 1, ..header() },
            FrameHeader { depth: 1, base: Some(ChunkId::of(b"b")), ..header() },
            FrameHeader { codec: Codec::Patch, ..header() },
            FrameHeader { base: Some(patch().id), ..patch() },
            FrameHeader { kind: FrameKind::Tree, ..patch() },
            FrameHeader { stored_len: 5, ..patch() },
            FrameHeader { plain_len: u32::MAX, ..header() },
            FrameHeader { stored_len: u32::MAX, ..header() },
        ] {
            assert!(FrameHeader::decode(&bad.encode()).is_err(), "{bad:?}");
        }
    }
}

//! Immutable pieces of the index: sorted rows of the packs of one commit, or of several merged ones.

use std::collections::BTreeSet;

use bytes::{Buf, BufMut};

use crate::frame::take;
use crate::row::{decode_table, encode_table, need, table_len};
use crate::{DecodeError, Digest, Limits, PackId, Row};

const MAGIC: [u8; 8] = *b"FBYSEGM0";
const WHAT: &str = "index segment";

/// A pack that a segment lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPack {
    /// The pack's name.
    pub id: PackId,
    /// Length of the whole pack object in bytes, within [`Limits::pack_bytes`].
    pub len: u64,
}

/// Sorted rows of some packs:
/// `[magic: 8][generation: 8][pack count: 4][packs: (id 16, length 8)…][row count: 4][rows][bases][pack number: 4]…
/// [BLAKE3 of all before: 32]`. Complete for each pack it lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Index generation the segment belongs to.
    pub generation: u64,
    /// The packs, in the order their numbers count.
    pub packs: Vec<SegmentPack>,
    /// Rows with the number of their pack, sorted by id, then pack number.
    pub rows: Vec<(Row, u32)>,
}

impl Segment {
    /// The segment's bytes. Sorts the rows.
    ///
    /// # Panics
    /// If it lists 2^32 packs or rows; a segment is closed at 200,000 rows.
    #[must_use]
    pub fn encode(&mut self) -> Vec<u8> {
        self.rows.sort_unstable_by_key(|(row, pack)| (row.id(), *pack));
        let rows: Vec<Row> = self.rows.iter().map(|(row, _)| *row).collect();
        let mut bytes = Vec::with_capacity(52 + self.packs.len() * 24 + table_len(&rows) + rows.len() * 4);
        bytes.put_slice(&MAGIC);
        bytes.put_u64_le(self.generation);
        bytes.put_u32_le(u32::try_from(self.packs.len()).expect("fewer than 2^32 packs"));
        for pack in &self.packs {
            bytes.put_slice(pack.id.as_bytes());
            bytes.put_u64_le(pack.len);
        }
        encode_table(&rows, &mut bytes);
        for (_, pack) in &self.rows {
            bytes.put_u32_le(*pack);
        }
        let digest = Digest::of(&bytes);
        bytes.put_slice(digest.as_bytes());
        bytes
    }

    /// Reads a whole segment.
    ///
    /// # Errors
    /// [`DecodeError`] for anything [`Self::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let len = bytes.len() as u64;
        let limit = Limits::DEFAULT.segment_bytes;
        if len > limit {
            return Err(DecodeError::TooLong { what: WHAT, len, limit });
        }
        let Some(body_len) = bytes.len().checked_sub(Digest::LEN) else {
            return Err(DecodeError::Truncated { what: WHAT, needed: Digest::LEN as u64, len });
        };
        let (mut input, digest) = bytes.split_at(body_len);
        if Digest::of(input).as_bytes() != digest {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        if need(WHAT, &mut input, 8)? != MAGIC {
            return Err(DecodeError::Magic { what: WHAT });
        }
        let generation = need(WHAT, &mut input, 8)?.get_u64_le();
        let packs = decode_packs(&mut input)?;
        let rows = decode_table(WHAT, &mut input, true)?;
        let mut numbers = need(WHAT, &mut input, rows.len() as u64 * 4)?;
        if !input.is_empty() {
            let value = input.len() as u64;
            return Err(DecodeError::Field { what: WHAT, field: "number of trailing bytes", value });
        }
        let rows: Vec<(Row, u32)> = rows.into_iter().map(|row| (row, numbers.get_u32_le())).collect();
        check_packs(&packs)?;
        check_rows(&packs, &rows)?;
        Ok(Self { generation, packs, rows })
    }
}

fn decode_packs(input: &mut &[u8]) -> Result<Vec<SegmentPack>, DecodeError> {
    let count = need(WHAT, input, 4)?.get_u32_le();
    let mut table = need(WHAT, input, u64::from(count) * 24)?;
    Ok((0..count).map(|_| SegmentPack { id: PackId::from_bytes(take(&mut table)), len: table.get_u64_le() }).collect())
}

/// No pack twice, none longer than a pack can be: readers size their reads by it.
fn check_packs(packs: &[SegmentPack]) -> Result<(), DecodeError> {
    let mut known = BTreeSet::new();
    for (index, pack) in (0..).zip(packs) {
        if pack.len > Limits::DEFAULT.pack_bytes {
            return Err(DecodeError::Field { what: WHAT, field: "pack length", value: pack.len });
        }
        if !known.insert(pack.id) {
            return Err(DecodeError::Field { what: WHAT, field: "repeated pack", value: index });
        }
    }
    Ok(())
}

fn check_rows(packs: &[SegmentPack], rows: &[(Row, u32)]) -> Result<(), DecodeError> {
    let mut last = None;
    for (index, (row, number)) in rows.iter().enumerate() {
        let pack = packs.get(*number as usize);
        if pack.is_none_or(|pack| row.end() > pack.len) {
            return Err(DecodeError::Field { what: WHAT, field: "pack number or offset", value: (*number).into() });
        }
        let key = (row.id(), *number);
        if last.is_some_and(|last| last >= key) {
            return Err(DecodeError::Order { what: WHAT, index: index as u64 });
        }
        last = Some(key);
    }
    Ok(())
}

//! The end of a pack: a footer that lists its frames, and a trailer that finds the footer.

use bytes::{Buf, BufMut};

use crate::frame::{FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, take};
use crate::row::{decode_table, encode_table, need, table_len};
use crate::{DecodeError, Digest, Limits, PackId, Row};

/// Bytes of the trailer at the very end of a pack.
pub const TRAILER_LEN: usize = Digest::LEN + 4 + 8;

const FOOTER_MAGIC: [u8; 8] = *b"FBYFOOT0";
const TRAILER_MAGIC: [u8; 8] = *b"FBYPACK0";
const WHAT: &str = "pack footer";

/// The table of a pack's frames: `[magic: 8][pack id: 16][row count: 4][rows sorted by id][bases]`, followed by the
/// trailer. It begins where the last frame ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackFooter {
    /// The pack's own name, so that a footer cannot pass for another pack's.
    pub pack: PackId,
    /// One row a frame, sorted by id, no id twice.
    pub rows: Vec<Row>,
}

/// The last bytes of a pack: `[BLAKE3 of the footer: 32][footer length: 4 LE][magic: 8]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackTrailer {
    /// BLAKE3 of the footer's bytes.
    pub digest: Digest,
    /// Length of the footer in bytes.
    pub footer_len: u32,
}

impl PackFooter {
    /// Footer and trailer, as they stand at the end of a pack. Sorts the rows.
    ///
    /// # Panics
    /// If there are rows enough for a footer of 4 GiB; a pack is closed at 64 MiB.
    #[must_use]
    pub fn encode(&mut self) -> Vec<u8> {
        self.rows.sort_unstable_by_key(Row::id);
        let mut bytes = Vec::with_capacity(FOOTER_MAGIC.len() + PackId::LEN + table_len(&self.rows) + TRAILER_LEN);
        bytes.put_slice(&FOOTER_MAGIC);
        bytes.put_slice(self.pack.as_bytes());
        encode_table(&self.rows, &mut bytes);
        let digest = Digest::of(&bytes);
        let footer_len = u32::try_from(bytes.len()).expect("a footer is far below 4 GiB");
        bytes.put_slice(digest.as_bytes());
        bytes.put_u32_le(footer_len);
        bytes.put_slice(&TRAILER_MAGIC);
        bytes
    }

    /// Reads the footer of `pack` whose trailer has been read. `frames_len` is the number of bytes before the footer.
    ///
    /// # Errors
    /// [`DecodeError`] if a checksum fails, if it is another pack's footer, or if rows reach out of the pack or overlap.
    pub fn decode(pack: PackId, trailer: &PackTrailer, frames_len: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() as u64 != u64::from(trailer.footer_len) {
            let needed = trailer.footer_len.into();
            return Err(DecodeError::Truncated { what: WHAT, needed, len: bytes.len() as u64 });
        }
        if Digest::of(bytes) != trailer.digest {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        let mut input = bytes;
        if need(WHAT, &mut input, 8)? != FOOTER_MAGIC {
            return Err(DecodeError::Magic { what: WHAT });
        }
        if need(WHAT, &mut input, PackId::LEN as u64)? != pack.as_bytes() {
            return Err(DecodeError::Field { what: WHAT, field: "pack id", value: 0 });
        }
        let rows = decode_table(WHAT, &mut input, false)?;
        if !input.is_empty() {
            let value = input.len() as u64;
            return Err(DecodeError::Field { what: WHAT, field: "number of trailing bytes", value });
        }
        check_layout(&rows, frames_len)?;
        Ok(Self { pack, rows })
    }

    /// Reads the footer at the end of a whole pack.
    ///
    /// # Errors
    /// As [`PackTrailer::decode`] and [`Self::decode`]; [`DecodeError::Truncated`] if the bytes have no place for a footer.
    pub fn of_pack(pack: PackId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let cut =
            |needed: usize| DecodeError::Truncated { what: "pack", needed: needed as u64, len: bytes.len() as u64 };
        let (front, trailer) = bytes.split_last_chunk::<TRAILER_LEN>().ok_or_else(|| cut(TRAILER_LEN))?;
        let trailer = PackTrailer::decode(trailer)?;
        let footer_len = trailer.footer_len as usize;
        let frames_len = front.len().checked_sub(footer_len).ok_or_else(|| cut(TRAILER_LEN + footer_len))?;
        Self::decode(pack, &trailer, frames_len as u64, &front[frames_len..])
    }

    /// The rows in the order of their frames in the pack.
    #[must_use]
    pub fn rows_by_offset(&self) -> Vec<Row> {
        by_offset(&self.rows)
    }
}

impl PackTrailer {
    /// Reads the last [`TRAILER_LEN`] bytes of a pack.
    ///
    /// # Errors
    /// [`DecodeError`] if they are not a trailer or announce a footer over the limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "pack trailer";
        if bytes.len() != TRAILER_LEN {
            return Err(DecodeError::Truncated { what, needed: TRAILER_LEN as u64, len: bytes.len() as u64 });
        }
        let mut rest = bytes;
        let digest = Digest::from_bytes(take(&mut rest));
        let footer_len = rest.get_u32_le();
        if rest != TRAILER_MAGIC {
            return Err(DecodeError::Magic { what });
        }
        let limit = Limits::DEFAULT.footer_bytes;
        if u64::from(footer_len) > limit {
            return Err(DecodeError::TooLong { what: WHAT, len: footer_len.into(), limit });
        }
        Ok(Self { digest, footer_len })
    }
}

/// The frames of a pack whose footer is lost, in their order, found by their headers alone: a header that is damaged hides its
/// frame and no other. Whoever reads a payload verifies it.
#[must_use]
pub fn scan_frames(pack: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr::memmem::find(&pack[at..], &FRAME_MAGIC) {
        let start = at + found;
        at = start + 1;
        let Ok(header) = FrameHeader::decode(&pack[start..]) else { continue };
        let Ok(offset) = u32::try_from(start) else { break };
        let row = Row { offset, header };
        if row.end() <= pack.len() as u64 {
            at = start + FRAME_HEADER_LEN + header.stored_len as usize;
            rows.push(row);
        }
    }
    rows
}

fn by_offset(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_unstable_by_key(|row| row.offset);
    rows
}

/// Frames follow each other without overlap, and the last ends where the footer begins.
fn check_layout(rows: &[Row], frames_len: u64) -> Result<(), DecodeError> {
    let mut end = 0;
    for row in by_offset(rows) {
        if u64::from(row.offset) < end {
            return Err(DecodeError::Field { what: WHAT, field: "frame offset", value: row.offset.into() });
        }
        end = row.end();
    }
    if end != frames_len {
        return Err(DecodeError::Contradiction {
            what: WHAT,
            field: "end of the last frame",
            claimed: end,
            actual: frames_len,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkId, Codec, FrameKind, StoredId};

    fn append(pack: &mut Vec<u8>, payload: &[u8]) -> Row {
        let header = FrameHeader {
            kind: FrameKind::Data,
            codec: Codec::Raw,
            depth: 0,
            id: ChunkId::of(payload),
            base: None,
            stored_id: StoredId::from_bytes(*ChunkId::of(payload).as_bytes()),
            plain_len: u32::try_from(payload.len()).unwrap(),
            stored_len: u32::try_from(payload.len()).unwrap(),
        };
        let row = Row { offset: u32::try_from(pack.len()).unwrap(), header };
        pack.extend_from_slice(&header.encode());
        pack.extend_from_slice(payload);
        row
    }

    #[test]
    fn frames_are_found_without_a_footer_whatever_is_damaged() {
        let mut pack = Vec::new();
        // A payload that is a frame itself, and a magic that begins nothing.
        let mut inner = Vec::new();
        append(&mut inner, b"inside");
        let mut rows = vec![append(&mut pack, b"one"), append(&mut pack, &inner)];
        pack.extend_from_slice(&[0; 77]);
        pack.extend_from_slice(b"FBYFRAM");
        pack.extend_from_slice(&FRAME_MAGIC);
        rows.push(append(&mut pack, &[7; 100_000]));
        rows.push(append(&mut pack, b""));
        assert_eq!(scan_frames(&pack), rows);
        // The last one is cut off.
        assert_eq!(scan_frames(&pack[..pack.len() - 1]), rows[..3]);
        // A damaged header hides its frame; what lies in the payload shows then, under its own name.
        let mut damaged = pack.clone();
        damaged[rows[1].offset as usize + 9] ^= 1;
        let found: Vec<_> = scan_frames(&damaged).iter().map(Row::id).collect();
        assert_eq!(found, [rows[0].id(), ChunkId::of(b"inside"), rows[2].id(), rows[3].id()]);
        assert_eq!(scan_frames(b""), []);
    }
}

//! Rows that say where a frame lies, and the table of them that footers and segments share.

use bytes::{Buf, BufMut};

use crate::frame::{check_shape, take};
use crate::{ChunkId, Codec, DecodeError, FRAME_HEADER_LEN, FrameHeader, FrameKind, StoredId};

/// Fixed bytes of a row in a table.
const ROW_LEN: usize = 80;
/// Flag of a row whose base stands in the table of bases.
const HAS_BASE: u8 = 1;

/// Where one frame lies in a pack, with all that its header says.
///
/// On disk 80 bytes, little-endian: `[id: 32][stored id: 32][offset: 4][stored_len: 4][plain_len: 4][kind: 1][codec: 1]
/// [depth: 1][flags: 1]`; the bases of the rows that have one follow the table in row order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Byte offset of the frame's header in its pack.
    pub offset: u32,
    /// The frame's header.
    pub header: FrameHeader,
}

impl Row {
    /// The chunk this row is about.
    #[must_use]
    pub const fn id(&self) -> ChunkId {
        self.header.id
    }

    /// Byte offset of the payload in its pack.
    #[must_use]
    pub const fn payload_offset(&self) -> u64 {
        self.offset as u64 + FRAME_HEADER_LEN as u64
    }

    /// Byte offset just behind the frame.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset as u64 + self.header.frame_len()
    }
}

/// Bytes the table of `rows` takes.
pub(crate) fn table_len(rows: &[Row]) -> usize {
    4 + rows.len() * ROW_LEN + rows.iter().filter(|row| row.header.base.is_some()).count() * ChunkId::LEN
}

/// Appends `[count: 4][rows][bases]`.
pub(crate) fn encode_table(rows: &[Row], out: &mut Vec<u8>) {
    out.put_u32_le(u32::try_from(rows.len()).expect("a pack or segment holds fewer than 2^32 rows"));
    for Row { offset, header } in rows {
        out.put_slice(header.id.as_bytes());
        out.put_slice(header.stored_id.as_bytes());
        out.put_u32_le(*offset);
        out.put_u32_le(header.stored_len);
        out.put_u32_le(header.plain_len);
        let flags = if header.base.is_some() { HAS_BASE } else { 0 };
        out.put_slice(&[header.kind as u8, header.codec as u8, header.depth, flags]);
    }
    for base in rows.iter().filter_map(|row| row.header.base) {
        out.put_slice(base.as_bytes());
    }
}

/// Reads a table from the front of `input`; rows must be sorted by id, and the same id may stand twice only where
/// `repeats` allows it (in segments, for frames in several packs).
pub(crate) fn decode_table(what: &'static str, input: &mut &[u8], repeats: bool) -> Result<Vec<Row>, DecodeError> {
    let count = need(what, input, 4)?.get_u32_le() as usize;
    let mut fixed = need(what, input, count as u64 * ROW_LEN as u64)?;
    let mut rows: Vec<Row> = Vec::with_capacity(count);
    let mut with_base = Vec::new();
    for index in 0..count {
        let (row, has_base) = decode_row(what, &mut fixed)?;
        if has_base {
            with_base.push(index);
        }
        if let Some(last) = rows.last()
            && (last.id() > row.id() || (last.id() == row.id() && !repeats))
        {
            return Err(DecodeError::Order { what, index: index as u64 });
        }
        rows.push(row);
    }
    let mut bases = need(what, input, with_base.len() as u64 * ChunkId::LEN as u64)?;
    for index in with_base {
        rows[index].header.base = Some(ChunkId::from_bytes(take(&mut bases)));
    }
    for row in &rows {
        check_shape(what, &row.header)?;
    }
    Ok(rows)
}

fn decode_row(what: &'static str, input: &mut &[u8]) -> Result<(Row, bool), DecodeError> {
    let field = |field, value: u8| DecodeError::Field { what, field, value: value.into() };
    let id = ChunkId::from_bytes(take(input));
    let stored_id = StoredId::from_bytes(take(input));
    let offset = input.get_u32_le();
    let stored_len = input.get_u32_le();
    let plain_len = input.get_u32_le();
    let [kind, codec, depth, flags] = take(input);
    let kind = FrameKind::from_u8(kind).ok_or_else(|| field("kind", kind))?;
    let codec = Codec::from_u8(codec).ok_or_else(|| field("codec", codec))?;
    if flags & !HAS_BASE != 0 {
        return Err(field("flags", flags));
    }
    let header = FrameHeader { kind, codec, depth, id, base: None, stored_id, plain_len, stored_len };
    Ok((Row { offset, header }, flags & HAS_BASE != 0))
}

/// Splits `len` bytes off the front.
pub(crate) fn need<'b>(what: &'static str, input: &mut &'b [u8], len: u64) -> Result<&'b [u8], DecodeError> {
    if (input.len() as u64) < len {
        return Err(DecodeError::Truncated { what, needed: len, len: input.len() as u64 });
    }
    let at = usize::try_from(len).expect("no more than the input's own length");
    let (front, rest) = input.split_at(at);
    *input = rest;
    Ok(front)
}

//! The bytes of a file, in order.

use forebay_format::{Content, FileEntry, HOLE_BLOCK};

use crate::layout::Layout;
use crate::numbers::index;
use crate::pieces::{Piece, PieceReader};
use crate::repository::ReadError;
use crate::tree::for_each_chunk;

/// Plain bytes read together: the memory this takes, whatever the file's length.
const BATCH_BYTES: u64 = 4 << 20;
static ZEROS: [u8; index(HOLE_BLOCK)] = [0; index(HOLE_BLOCK)];

/// Hands out a file's bytes in order, verified, holes as zeros.
///
/// # Errors
/// What `take` returns, or [`ReadError`]; everything handed out before is right.
pub fn read_file<E: From<ReadError>>(
    pieces: &mut PieceReader<'_>,
    file: &FileEntry,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if let Content::Inline(bytes) = &file.content {
        return take(bytes);
    }
    let mut layout = Layout::of(file);
    let mut batch = Batch::default();
    let mut end = 0;
    for_each_chunk::<E>(pieces.chunks(), file, |chunk| {
        let offset = layout.place(chunk)?;
        if offset != end || batch.bytes >= BATCH_BYTES {
            batch.hand_out(pieces, take)?;
            zeros(offset - end, take)?;
        }
        batch.pieces.push(Piece { id: chunk.id, len: chunk.len, slot: 0, offset: batch.bytes });
        batch.bytes += u64::from(chunk.len);
        end = offset + u64::from(chunk.len);
        Ok(())
    })?;
    batch.hand_out(pieces, take)?;
    zeros(file.size - end, take)
}

/// Neighbouring chunks, read together and handed out in order.
#[derive(Default)]
struct Batch {
    pieces: Vec<Piece>,
    bytes: u64,
    plain: Vec<u8>,
}

impl Batch {
    fn hand_out<E: From<ReadError>>(
        &mut self,
        reader: &mut PieceReader<'_>,
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.plain.resize(index(self.bytes), 0);
        let plain = &mut self.plain;
        reader.read::<E>(std::mem::take(&mut self.pieces), |piece, bytes| {
            let start = index(piece.offset);
            plain[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        self.bytes = 0;
        if self.plain.is_empty() { Ok(()) } else { take(&self.plain) }
    }
}

fn zeros<E>(mut len: u64, take: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    while len > 0 {
        let now = len.min(HOLE_BLOCK);
        take(&ZEROS[..index(now)])?;
        len -= now;
    }
    Ok(())
}

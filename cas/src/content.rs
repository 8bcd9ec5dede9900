//! The bytes of a file, in order.

use forebay_format::{ChunkRef, Content, FileEntry, HOLE_BLOCK};

use crate::layout::Layout;
use crate::numbers::{index, length};
use crate::pieces::{Piece, PieceReader};
use crate::repository::{ChunkReader, ReadError};
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
    let mut batch = Batch::default();
    let mut end = 0;
    for_each_place::<E>(pieces.chunks(), file, |offset, chunk| {
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

/// Calls `take` for each chunk of a file with its offset in the file, in order.
///
/// # Errors
/// What `take` returns, or [`ReadError`] if a list is damaged or a chunk does not fit its place.
pub fn for_each_place<E: From<ReadError>>(
    reader: &ChunkReader,
    file: &FileEntry,
    mut take: impl FnMut(u64, ChunkRef) -> Result<(), E>,
) -> Result<(), E> {
    let mut layout = Layout::of(file);
    for_each_chunk::<E>(reader, file, |chunk| {
        let offset = layout.place(chunk)?;
        take(offset, chunk)
    })
}

/// The first `len` bytes of a file, or all of a shorter one; only the chunks that hold them are read.
///
/// # Errors
/// [`ReadError`] if one of them is missing or damaged.
pub fn read_start(pieces: &mut PieceReader<'_>, file: &FileEntry, len: usize) -> Result<Vec<u8>, ReadError> {
    let len = length(len).min(file.size);
    if let Content::Inline(bytes) = &file.content {
        return Ok(bytes[..index(len)].to_vec());
    }
    let mut wanted = Vec::new();
    let placed = for_each_place::<Ended>(pieces.chunks(), file, |offset, chunk| {
        if offset >= len {
            return Err(Ended::Enough);
        }
        wanted.push(Piece { id: chunk.id, len: chunk.len, slot: 0, offset });
        Ok(())
    });
    if let Err(Ended::Failed(error)) = placed {
        return Err(error);
    }
    // What no chunk covers is a hole.
    let mut start = vec![0; index(len)];
    pieces.read::<ReadError>(wanted, |piece, bytes| {
        let target = &mut start[index(piece.offset)..];
        let covered = bytes.len().min(target.len());
        target[..covered].copy_from_slice(&bytes[..covered]);
        Ok(())
    })?;
    Ok(start)
}

/// Why a walk over chunks ended early.
enum Ended {
    Enough,
    Failed(ReadError),
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
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

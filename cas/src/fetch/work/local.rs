//! Chunks of an older version of a file that is in the folder already.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use forebay_format::ChunkId;

use crate::chunker::{Chunker, FastCdc};
use crate::numbers::length;

/// Bytes of an old file that are looked at; an index of larger ones would take more than 16 MiB at small chunks.
const OLD_BYTES_MAX: u64 = 16 << 30;
/// Bytes of the old version of a small file; where there are more, most of it is of no use.
const SMALL_BYTES_MAX: u64 = 16 << 20;
const READ_BYTES: usize = 4 << 20;

/// The old file with its chunks by id. It is cut when the first chunk is asked for.
#[derive(Debug)]
pub(super) struct Local {
    old: Option<File>,
    chunker: FastCdc,
    /// Offset and length of each.
    chunks: Option<BTreeMap<ChunkId, (u64, usize)>>,
}

impl Local {
    pub(super) const fn of(old: Option<File>, chunker: FastCdc) -> Self {
        Self { old, chunker, chunks: None }
    }

    /// Reads a chunk into `plain`; `false` if the old file does not have it. What is read is verified.
    pub(super) fn read(&mut self, id: ChunkId, plain: &mut Vec<u8>) -> bool {
        let Some(old) = &self.old else { return false };
        let chunker = self.chunker;
        // An old file that cannot be read has no chunks to offer.
        let chunks = self.chunks.get_or_insert_with(|| cut(old, &chunker).unwrap_or_default());
        let Some((offset, len)) = chunks.get(&id) else { return false };
        plain.resize(*len, 0);
        old.read_exact_at(plain, *offset).is_ok() && ChunkId::of(plain) == id
    }
}

/// Older versions of several small files, whose chunks small patches are made of. They are cut when the first chunk is asked
/// for, and none is kept open.
#[derive(Debug)]
pub(super) struct OldFiles {
    chunker: FastCdc,
    /// Number of the file, offset and length of each chunk.
    chunks: Option<BTreeMap<ChunkId, (usize, u64, usize)>>,
}

impl OldFiles {
    pub(super) const fn of(chunker: FastCdc) -> Self {
        Self { chunker, chunks: None }
    }

    /// Reads a chunk into `plain`; `false` if none of the `count` old files has it. What is read is verified.
    pub(super) fn read(
        &mut self,
        id: ChunkId,
        plain: &mut Vec<u8>,
        count: usize,
        open: &mut dyn FnMut(usize) -> Option<File>,
    ) -> bool {
        let chunker = self.chunker;
        let chunks = self.chunks.get_or_insert_with(|| {
            let cut_one = |number| {
                let old = open(number)?;
                let is_small = old.metadata().ok()?.len() <= SMALL_BYTES_MAX;
                Some((number, is_small.then(|| cut(&old, &chunker).ok())??))
            };
            let files = (0..count).filter_map(cut_one);
            let chunks = files.flat_map(|(number, chunks)| {
                chunks.into_iter().map(move |(id, (offset, len))| (id, (number, offset, len)))
            });
            chunks.collect()
        });
        let Some((number, offset, len)) = chunks.get(&id) else { return false };
        let Some(old) = open(*number) else { return false };
        plain.resize(*len, 0);
        old.read_exact_at(plain, *offset).is_ok() && ChunkId::of(plain) == id
    }
}

/// Cuts a file the way a push does, apart from holes: chunks around them are simply not found.
fn cut(old: &File, chunker: &FastCdc) -> std::io::Result<BTreeMap<ChunkId, (u64, usize)>> {
    let mut chunks = BTreeMap::new();
    let size = old.metadata()?.len();
    if size > OLD_BYTES_MAX {
        return Ok(chunks);
    }
    let mut buffer = vec![0; READ_BYTES + chunker.window()];
    let (mut filled, mut offset) = (0, 0);
    loop {
        let mut at_end = false;
        while filled < buffer.len() && !at_end {
            let len = old.read_at(&mut buffer[filled..], offset + length(filled))?;
            filled += len;
            at_end = len == 0;
        }
        let mut rest = &buffer[..filled];
        while !rest.is_empty() && (at_end || rest.len() >= chunker.window()) {
            let (chunk, behind) = rest.split_at(chunker.cut(rest));
            chunks.insert(ChunkId::of(chunk), (offset, chunk.len()));
            offset += length(chunk.len());
            rest = behind;
        }
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
        if at_end {
            return Ok(chunks);
        }
    }
}

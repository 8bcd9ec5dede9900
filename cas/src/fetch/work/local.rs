//! Chunks of an older version of a file that is in the folder already.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use forebay_format::ChunkId;

use crate::chunker::{Chunker, FastCdc};
use crate::numbers::{index, length};

/// Bytes of an old file that are looked at; an index of larger ones would take more than 16 MiB at small chunks.
const OLD_BYTES_MAX: u64 = 16 << 30;
const READ_BYTES: usize = 4 << 20;

/// The old file with its chunks by id. It is cut when the first chunk is asked for.
#[derive(Debug)]
pub(super) struct Local {
    old: Option<File>,
    chunker: FastCdc,
    chunks: Option<BTreeMap<ChunkId, u64>>,
}

impl Local {
    pub(super) const fn of(old: Option<File>, chunker: FastCdc) -> Self {
        Self { old, chunker, chunks: None }
    }

    /// Reads a chunk into `plain`; `false` if the old file does not have it. What is read is verified.
    pub(super) fn read(&mut self, id: ChunkId, len: u32, plain: &mut Vec<u8>) -> bool {
        let Some(old) = &self.old else { return false };
        let chunker = self.chunker;
        // An old file that cannot be read has no chunks to offer.
        let chunks = self.chunks.get_or_insert_with(|| cut(old, &chunker).unwrap_or_default());
        let Some(offset) = chunks.get(&id) else { return false };
        plain.resize(index(len.into()), 0);
        old.read_exact_at(plain, *offset).is_ok() && ChunkId::of(plain) == id
    }
}

/// Cuts a file the way a push does, apart from holes: chunks around them are simply not found.
fn cut(old: &File, chunker: &FastCdc) -> std::io::Result<BTreeMap<ChunkId, u64>> {
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
            chunks.insert(ChunkId::of(chunk), offset);
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

//! Sets of many chunks.

use std::collections::BTreeSet;

use forebay_format::ChunkId;

/// The first sixteen bytes of an id. Two chunks that share them by chance are not to be expected in any repository, and to forge
/// one that shares another's takes 2^128 tries.
pub(crate) fn short_id(id: ChunkId) -> u128 {
    let mut first = [0; 16];
    first.copy_from_slice(&id.as_bytes()[..16]);
    u128::from_be_bytes(first)
}

/// Chunks that were met, at about 25 bytes each.
#[derive(Debug, Default)]
pub(crate) struct SeenChunks(BTreeSet<u128>);

impl SeenChunks {
    /// Adds a chunk; says whether it is new.
    pub(crate) fn insert(&mut self, id: ChunkId) -> bool {
        self.0.insert(short_id(id))
    }
}

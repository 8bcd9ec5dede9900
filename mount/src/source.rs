//! Where a mount reads from.

use std::fmt::Debug;

use forebay_cas::pieces::{Piece, PieceReader};
use forebay_cas::{ChunkReader, ReadError};
use forebay_format::{ChunkId, ListNode, Totals, TreeNode};

/// Reads verified pieces of one repository: from its origin, or from nodes.
///
/// Calls block, may take as long as a network does, and may come from many threads at once: nobody holds a lock
/// meanwhile.
pub trait Source: Send + Sync + Debug {
    /// Reads a tree node that holds these totals.
    ///
    /// # Errors
    /// [`ReadError`] if it is missing, damaged or out of reach.
    fn tree(&self, id: ChunkId, totals: Totals) -> Result<TreeNode, ReadError>;

    /// Reads a list of chunks that holds so many content bytes.
    ///
    /// # Errors
    /// As for [`Source::tree`].
    fn list(&self, id: ChunkId, bytes: u64) -> Result<ListNode, ReadError>;

    /// Reads pieces of content and hands out each with its bytes, in any order; neighbours are read together.
    ///
    /// # Errors
    /// [`ReadError`] of the first that cannot be had; what was handed out before is right.
    fn data(&self, pieces: Vec<Piece>, take: &mut dyn FnMut(&Piece, &[u8])) -> Result<(), ReadError>;
}

impl Source for ChunkReader {
    fn tree(&self, id: ChunkId, totals: Totals) -> Result<TreeNode, ReadError> {
        Self::tree(self, id, totals)
    }

    fn list(&self, id: ChunkId, bytes: u64) -> Result<ListNode, ReadError> {
        Self::list(self, id, bytes)
    }

    fn data(&self, pieces: Vec<Piece>, take: &mut dyn FnMut(&Piece, &[u8])) -> Result<(), ReadError> {
        PieceReader::new(self).read(pieces, |piece, bytes| {
            take(piece, bytes);
            Ok(())
        })
    }
}

//! A source in memory for tests: it counts, fails and waits on request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cas::ReadError;
use forebay_cas::pieces::Piece;
use forebay_cas::sync::{Mutex, Receiver};
use forebay_format::{ChunkId, FrameKind, ListNode, Totals, TreeNode};

use crate::source::Source;

/// Chunks in memory.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) chunks: BTreeMap<ChunkId, Vec<u8>>,
    pub(crate) trees: BTreeMap<ChunkId, TreeNode>,
    /// Requests, and pieces in them.
    pub(crate) requests: AtomicU64,
    pub(crate) pieces: AtomicU64,
    /// These fail now, as damaged or as out of reach.
    pub(crate) damaged: Mutex<Vec<ChunkId>>,
    /// A request waits for a word here, if there is one.
    pub(crate) gate: Mutex<Option<Receiver<()>>>,
}

fn missing(id: ChunkId) -> ReadError {
    ReadError::Missing { id, kind: FrameKind::Data }
}

impl Source for Fake {
    fn tree(&self, id: ChunkId, totals: Totals) -> Result<TreeNode, ReadError> {
        let node = self.trees.get(&id).cloned().ok_or_else(|| missing(id))?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        assert_eq!(node.totals(), Some(totals), "the real source checks it");
        if self.damaged.lock().contains(&id) { Err(missing(id)) } else { Ok(node) }
    }

    fn list(&self, id: ChunkId, _bytes: u64) -> Result<ListNode, ReadError> {
        Err(missing(id))
    }

    fn data(&self, pieces: Vec<Piece>, take: &mut dyn FnMut(&Piece, &[u8])) -> Result<(), ReadError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            let _closed = gate.recv();
        }
        for piece in pieces {
            self.pieces.fetch_add(1, Ordering::Relaxed);
            if self.damaged.lock().contains(&piece.id) {
                return Err(missing(piece.id));
            }
            take(&piece, self.chunks.get(&piece.id).ok_or_else(|| missing(piece.id))?);
        }
        Ok(())
    }
}

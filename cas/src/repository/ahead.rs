//! Manifest nodes of a distant source, read many at a time before they are asked for.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use forebay_format::{ChunkId, FrameKind};

use crate::codec::Decoder;
use crate::source::{ChunkSource, Want};
use crate::sync::Mutex;

/// Plain bytes kept until somebody asks for them.
const BYTES_MAX: usize = 32 << 20;

/// Verified nodes that nobody has asked for yet. Each is handed out once.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    nodes: Mutex<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    plain: BTreeMap<ChunkId, (FrameKind, Vec<u8>)>,
    bytes: usize,
}

impl Ahead {
    /// Hands a node out, if it is here.
    pub(crate) fn take(&self, id: ChunkId, kind: FrameKind) -> Option<Vec<u8>> {
        let mut nodes = self.nodes.lock();
        if nodes.plain.get(&id)?.0 != kind {
            return None;
        }
        let (_, plain) = nodes.plain.remove(&id)?;
        nodes.bytes -= plain.len();
        Some(plain)
    }

    /// Lets `look` see a node that stays here.
    pub(crate) fn peek<T>(&self, id: ChunkId, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.nodes.lock().plain.get(&id).map(|(_, plain)| look(plain))
    }

    /// Reads those that are not here yet, in one go, as far as there is room. Nothing is said of what does not come: who
    /// asks for it finds out.
    pub(crate) fn read(&self, source: &dyn ChunkSource, kind: FrameKind, ids: impl IntoIterator<Item = ChunkId>) {
        let wants: Vec<Want> = {
            let nodes = self.nodes.lock();
            ids.into_iter().filter(|id| !nodes.plain.contains_key(id)).map(|id| Want { id, len: 0 }).collect()
        };
        if wants.is_empty() || self.nodes.lock().bytes >= BYTES_MAX {
            return;
        }
        let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
        let read = source.frames(kind, &wants, &mut |frame| {
            let id = frame.header.id;
            let whole = decoder.decode(&frame.header, &frame.payload, None, &mut buffer);
            let Some(plain) = whole.ok().filter(|_| frame.header.kind == kind) else {
                return ControlFlow::Continue(());
            };
            let mut nodes = self.nodes.lock();
            if nodes.plain.insert(id, (kind, plain.to_vec())).is_none() {
                nodes.bytes += plain.len();
            }
            if nodes.bytes < BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if let Err(error) = read {
            tracing::debug!(%error, "manifest nodes are read one by one");
        }
    }
}

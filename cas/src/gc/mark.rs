//! What is alive: everything that a version of a ref leads to.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    ChunkId, Content, Directory, EntryKind, FrameKind, ListNode, ListRef, LogState, RefVersion, Totals, TreeNode,
};

use super::GcError;
use crate::cancel::Cancel;
use crate::repository::{ChunkReader, ReadError};
use crate::seen::short_id;

/// Where the best frame of a live chunk lies: that of least depth, so that chains of patches never lead in a circle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Best {
    /// Length of the chain of bases below it.
    pub(super) depth: u8,
    /// Number of its pack.
    pub(super) pack: u32,
    /// Bytes of the frame.
    pub(super) len: u32,
}

/// The live chunks by their short ids. About 45 bytes a chunk.
#[derive(Debug, Default)]
pub(super) struct Live {
    chunks: BTreeMap<u128, Option<Best>>,
    /// Manifest nodes whose content has been marked, by their whole ids.
    walked: BTreeSet<ChunkId>,
    /// Those that only patches in kept packs need, and no version: another look at the packs may find that nothing does.
    bases: Vec<ChunkId>,
}

impl Live {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Adds a chunk; says whether it is new.
    pub(super) fn insert(&mut self, id: ChunkId) -> bool {
        let before = self.chunks.len();
        self.chunks.entry(short_id(id)).or_default();
        self.chunks.len() > before
    }

    /// Adds a chunk that a patch is made of.
    pub(super) fn insert_base(&mut self, id: ChunkId) {
        if self.insert(id) {
            self.bases.push(id);
        }
    }

    /// Lets go of what only patches needed.
    pub(super) fn forget_bases(&mut self) {
        for id in std::mem::take(&mut self.bases) {
            self.chunks.remove(&short_id(id));
        }
    }

    /// The entry of a chunk, if it is alive.
    pub(super) fn get_mut(&mut self, id: ChunkId) -> Option<&mut Option<Best>> {
        self.chunks.get_mut(&short_id(id))
    }

    /// Whether the frame of a chunk in this pack is the one that keeps it.
    pub(super) fn is_best(&self, id: ChunkId, pack: u32) -> bool {
        self.chunks.get(&short_id(id)).copied().flatten().is_some_and(|best| best.pack == pack)
    }

    /// Forgets where frames lie, not what is alive.
    pub(super) fn forget_places(&mut self) {
        self.chunks.values_mut().for_each(|best| *best = None);
    }

    /// Chunks of which no frame has been found.
    pub(super) fn lost(&self) -> usize {
        self.chunks.values().filter(|best| best.is_none()).count()
    }
}

/// Marks what all versions lead to. What a mark before has walked is not walked again.
///
/// # Errors
/// [`GcError`] if anything cannot be read, or is not there: then nothing may be deleted.
pub(super) fn mark(reader: &ChunkReader, state: &LogState, live: &mut Live, cancel: &Cancel) -> Result<(), GcError> {
    let mut marking = Marking { reader, live, cancel };
    for version in state.refs.iter().flat_map(|one| &one.versions) {
        marking.version(version)?;
    }
    Ok(())
}

struct Marking<'m> {
    reader: &'m ChunkReader,
    live: &'m mut Live,
    cancel: &'m Cancel,
}

impl Marking<'_> {
    fn version(&mut self, version: &RefVersion) -> Result<(), GcError> {
        if let Some(envelope) = version.envelope {
            self.chunk(envelope, FrameKind::Envelope)?;
        }
        let id = version.snapshot.chunk_id();
        self.chunk(id, FrameKind::Snapshot)?;
        if !self.live.walked.insert(id) {
            return Ok(());
        }
        let root = self.reader.snapshot(version.snapshot)?.root;
        self.directory(root)
    }

    /// Everything below a folder, without recursion: folders nest deeper than a stack may.
    fn directory(&mut self, root: Directory) -> Result<(), GcError> {
        let mut todo: Vec<(ChunkId, Totals)> = vec![(root.node, root.totals)];
        while let Some((node, totals)) = todo.pop() {
            if self.cancel.is_cancelled() {
                return Err(GcError::Interrupted);
            }
            self.chunk(node, FrameKind::Tree)?;
            if !self.live.walked.insert(node) {
                continue;
            }
            match self.reader.tree(node, totals)? {
                TreeNode::Inner(parts) => todo.extend(parts.into_iter().map(|part| (part.node, part.totals))),
                TreeNode::Leaf(entries) => {
                    for entry in entries {
                        match entry.kind {
                            EntryKind::Dir(directory) => todo.push((directory.node, directory.totals)),
                            EntryKind::File(file) => self.content(&file.content)?,
                            EntryKind::Symlink(_) => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn content(&mut self, content: &Content) -> Result<(), GcError> {
        match content {
            Content::Inline(_) => Ok(()),
            Content::Chunks(chunks) => chunks.iter().try_for_each(|chunk| self.chunk(chunk.id, FrameKind::Data)),
            Content::Lists(height, lists) => {
                let mut todo: Vec<(u8, ListRef)> = lists.iter().map(|list| (*height, *list)).collect();
                while let Some((height, list)) = todo.pop() {
                    self.chunk(list.id, FrameKind::List)?;
                    if !self.live.walked.insert(list.id) {
                        continue;
                    }
                    match self.reader.list(list.id, list.bytes)? {
                        ListNode::Chunks(chunks) => {
                            chunks.iter().try_for_each(|chunk| self.chunk(chunk.id, FrameKind::Data))?;
                        }
                        ListNode::Lists(lists) => {
                            todo.extend(lists.iter().map(|list| (height.saturating_sub(1), *list)))
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// A chunk that is needed, and must have a place.
    fn chunk(&mut self, id: ChunkId, kind: FrameKind) -> Result<(), GcError> {
        if self.live.insert(id) && !self.reader.has(id, kind)? {
            return Err(ReadError::Missing { id, kind }.into());
        }
        Ok(())
    }
}

//! Folders of the manifest, read part by part as somebody looks into them.

use std::sync::Arc;

use forebay_cas::ReadError;
use forebay_format::{ChunkId, Content, Directory, Entry, EntryKind, Totals, TreeNode};

use crate::cache::Cache;
use crate::error::TreeError;
use crate::source::Source;

/// Parts of parts of a folder: 32 levels of at least two parts each hold more names than any disk.
const PARTS_DEPTH_MAX: u32 = 32;

/// Whether a request may read what is not here yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only what is here: [`TreeError::NotCached`] otherwise, at once.
    Cached,
    /// Whatever is needed, for as long as it takes.
    Load,
}

/// Reads folders and keeps what it read, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct Folders {
    source: Arc<dyn Source>,
    parts: Cache<ChunkId, Parts>,
    leaves: Cache<ChunkId, Leaf>,
}

/// The parts of a folder, in order of names: one for a small folder.
#[derive(Debug)]
pub(crate) struct Parts {
    totals: Totals,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// First name; empty for the only part of a small folder, which may be empty itself.
    first: Box<[u8]>,
    node: ChunkId,
    totals: Totals,
}

/// Entries that lie beside each other.
#[derive(Debug)]
pub(crate) struct Leaf {
    node: ChunkId,
    totals: Totals,
    entries: Vec<Entry>,
}

/// An entry of a leaf.
#[derive(Debug, Clone)]
pub(crate) struct EntryRef {
    leaf: Arc<Leaf>,
    index: usize,
}

impl EntryRef {
    pub(crate) fn get(&self) -> &Entry {
        &self.leaf.entries[self.index]
    }

    /// The entries beside it, and which of them it is.
    pub(crate) fn place(&self) -> (&Arc<Leaf>, usize) {
        (&self.leaf, self.index)
    }
}

impl Leaf {
    /// The node it was read from.
    pub(crate) fn node(&self) -> ChunkId {
        self.node
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Where a listing goes on: part, then entry in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) part: u32,
    pub(crate) entry: u32,
}

impl Folders {
    /// Nothing read yet; at most so many bytes will be kept.
    pub(crate) fn new(source: Arc<dyn Source>, bytes_max: u64) -> Self {
        Self { source, parts: Cache::new(bytes_max / 4), leaves: Cache::new(bytes_max - bytes_max / 4) }
    }

    /// Finds a name.
    pub(crate) fn find(
        &self,
        directory: &Directory,
        name: &[u8],
        access: Access,
    ) -> Result<Option<EntryRef>, TreeError> {
        let parts = self.parts(directory, access)?;
        let Some(part) = parts.parts.partition_point(|part| &*part.first <= name).checked_sub(1) else {
            return Ok(None);
        };
        let leaf = self.leaf(&parts, part, access)?;
        let found = leaf.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        Ok(found.ok().map(|index| EntryRef { leaf, index }))
    }

    /// Hands out entries in order from a place on, each with the place behind it, until `take` returns false.
    pub(crate) fn list(
        &self,
        directory: &Directory,
        from: Place,
        access: Access,
        take: &mut dyn FnMut(&Entry, Place) -> Result<bool, TreeError>,
    ) -> Result<(), TreeError> {
        let parts = self.parts(directory, access)?;
        let mut first = index(from.entry);
        for part in index(from.part)..parts.parts.len() {
            let leaf = self.leaf(&parts, part, access)?;
            for (at, entry) in leaf.entries.iter().enumerate().skip(first) {
                if !take(entry, Place { part: number(part), entry: number(at + 1) })? {
                    return Ok(());
                }
            }
            first = 0;
        }
        Ok(())
    }

    fn parts(&self, directory: &Directory, access: Access) -> Result<Arc<Parts>, TreeError> {
        let parts = match access {
            Access::Cached => self.parts.peek(directory.node).ok_or(TreeError::NotCached)?,
            Access::Load => self.parts.get_or_load(directory.node, Parts::weight, || self.read_parts(directory))?,
        };
        // The same node under other totals is a forgery that decoding would have found.
        if parts.totals == directory.totals { Ok(parts) } else { Err(damaged().into()) }
    }

    fn leaf(&self, parts: &Parts, at: usize, access: Access) -> Result<Arc<Leaf>, TreeError> {
        let part = &parts.parts[at];
        let leaf = match access {
            Access::Cached => self.leaves.peek(part.node).ok_or(TreeError::NotCached)?,
            Access::Load => self.leaves.get_or_load(part.node, Leaf::weight, || {
                match self.source.tree(part.node, part.totals)? {
                    TreeNode::Leaf(entries) => Ok(Leaf { node: part.node, totals: part.totals, entries }),
                    TreeNode::Inner(_) => Err(damaged()),
                }
            })?,
        };
        let next = parts.parts.get(at + 1);
        let starts_right =
            part.first.is_empty() || leaf.entries.first().is_some_and(|first| *first.name == *part.first);
        let ends_right = next.zip(leaf.entries.last()).is_none_or(|(next, last)| last.name.as_slice() < &*next.first);
        if leaf.totals == part.totals && starts_right && ends_right { Ok(leaf) } else { Err(damaged().into()) }
    }

    /// Reads the inner nodes of a folder down to its leaves, which are not read.
    fn read_parts(&self, directory: &Directory) -> Result<Parts, ReadError> {
        let mut parts: Vec<Part> = Vec::new();
        let root = Part { first: Box::default(), node: directory.node, totals: directory.totals };
        let mut todo = vec![(root, 0)];
        // The height of the tree is known from the way down its left side: only there a node has to be read to know
        // whether it is a leaf.
        let mut leaf_depth = None;
        while let Some((part, depth)) = todo.pop() {
            if depth > PARTS_DEPTH_MAX {
                return Err(damaged());
            }
            if leaf_depth == Some(depth) {
                parts.push(part);
                continue;
            }
            match self.source.tree(part.node, part.totals)? {
                TreeNode::Leaf(entries) if leaf_depth.is_none() => {
                    leaf_depth = Some(depth);
                    let leaf = Leaf { node: part.node, totals: part.totals, entries };
                    let weight = leaf.weight();
                    self.leaves.insert(part.node, leaf, weight);
                    parts.push(part);
                }
                TreeNode::Inner(below) => {
                    let right_first =
                        part.first.is_empty() || below.first().is_some_and(|first| *first.first == *part.first);
                    if !right_first {
                        return Err(damaged());
                    }
                    let below = below.into_iter().rev();
                    todo.extend(below.map(|part| {
                        (Part { first: part.first.into(), node: part.node, totals: part.totals }, depth + 1)
                    }));
                }
                TreeNode::Leaf(_) => return Err(damaged()),
            }
        }
        let in_order = parts.windows(2).all(|pair| pair[0].first < pair[1].first);
        if in_order { Ok(Parts { totals: directory.totals, parts }) } else { Err(damaged()) }
    }
}

impl Parts {
    fn weight(&self) -> u64 {
        let names: usize = self.parts.iter().map(|part| part.first.len()).sum();
        (names + size_of_val(self.parts.as_slice()) + size_of::<Self>()) as u64
    }
}

impl Leaf {
    fn weight(&self) -> u64 {
        let below = |entry: &Entry| {
            let content = match &entry.kind {
                EntryKind::File(file) => {
                    let content = match &file.content {
                        Content::Inline(bytes) => bytes.len(),
                        Content::Chunks(chunks) => size_of_val(chunks.as_slice()),
                        Content::Lists(_, lists) => size_of_val(lists.as_slice()),
                    };
                    content + size_of_val(file.holes())
                }
                EntryKind::Dir(_) => 0,
                EntryKind::Symlink(target) => target.len(),
            };
            size_of::<Entry>() + entry.name.len() + content
        };
        (self.entries.iter().map(below).sum::<usize>() + size_of::<Self>()) as u64
    }
}

fn damaged() -> ReadError {
    ReadError::Tree { path: Vec::new() }
}

fn index(number: u32) -> usize {
    number as usize
}

/// A part or entry number: a folder of 2^32 parts does not fit into any memory.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

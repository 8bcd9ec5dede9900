//! Building manifests bottom-up, cut by content so that a change moves only the nodes around it.

use forebay_format::{
    ChunkId, ChunkRef, Content, Directory, Entry, FrameKind, ListNode, ListRef, SubtreeRef, Totals, TreeNode,
};

/// A node is not closed before it has this many encoded bytes, about a hundred entries.
const NODE_MIN_BYTES: usize = 16 << 10;
/// A node is closed at the latest here; the decoder's limit is eight times as high.
const NODE_MAX_BYTES: usize = 512 << 10;
/// In between, a node is closed behind a name whose hash is divisible by this.
const NODE_CUT: u8 = 32;
/// Files of up to this many chunks list them in their entry.
pub(crate) const ENTRY_CHUNKS_MAX: usize = 256;
/// Bounds of a list of chunks; in between it is closed behind an id divisible by [`LIST_CUT`].
const LIST_MIN: usize = 64;
const LIST_MAX: usize = 1024;
const LIST_CUT: u8 = 128;
/// Rough bytes of an entry or part beside its name and content; only decides where nodes are cut.
const ENTRY_BYTES: usize = 96;

/// Takes the chunks a manifest consists of.
pub(crate) trait NodeSink {
    /// What storing can fail with.
    type Error;

    /// Stores a chunk of a kind and names it.
    fn store(&mut self, kind: FrameKind, plain: &[u8]) -> Result<ChunkId, Self::Error>;
}

/// Stores the nodes of a folder as its entries come, sorted by name. Of each level only the node that is not closed yet
/// is in memory.
#[derive(Debug, Default)]
pub(crate) struct DirectoryBuilder {
    leaf: Group<Entry>,
    levels: Vec<Level>,
}

/// The nodes of one level so far.
#[derive(Debug, Default)]
struct Level {
    group: Group<SubtreeRef>,
    /// Nodes of the level below, those in closed nodes too.
    parts: usize,
}

impl DirectoryBuilder {
    /// Takes the next entry.
    pub(crate) fn push<S: NodeSink>(&mut self, sink: &mut S, entry: Entry) -> Result<(), S::Error> {
        let (len, cut) = (entry_len(&entry), cut_after(&entry.name));
        match self.leaf.push(entry, len, cut) {
            Some(closed) => self.close_leaf(sink, closed),
            None => Ok(()),
        }
    }

    /// The folder; an empty one has one empty leaf.
    pub(crate) fn finish<S: NodeSink>(mut self, sink: &mut S) -> Result<Directory, S::Error> {
        let last = std::mem::take(&mut self.leaf.items);
        self.close_leaf(sink, last)?;
        let mut at = 0;
        loop {
            let level = &mut self.levels[at];
            let mut last = std::mem::take(&mut level.group.items);
            if level.parts == 1 {
                let root = last.pop().expect("the only part is in no closed node");
                return Ok(Directory { node: root.node, totals: root.totals });
            }
            at += 1;
            self.close_inner(sink, at, last)?;
        }
    }

    fn close_leaf<S: NodeSink>(&mut self, sink: &mut S, entries: Vec<Entry>) -> Result<(), S::Error> {
        let first = entries.first().map(|entry| entry.name.clone()).unwrap_or_default();
        let part = store_node(sink, first, &TreeNode::Leaf(entries))?;
        self.add(sink, 0, part)
    }

    fn close_inner<S: NodeSink>(&mut self, sink: &mut S, at: usize, parts: Vec<SubtreeRef>) -> Result<(), S::Error> {
        let first = parts.first().map(|part| part.first.clone()).unwrap_or_default();
        let part = store_node(sink, first, &TreeNode::Inner(parts))?;
        self.add(sink, at, part)
    }

    /// Adds a node to the parts that a level's nodes consist of.
    fn add<S: NodeSink>(&mut self, sink: &mut S, at: usize, part: SubtreeRef) -> Result<(), S::Error> {
        if self.levels.len() == at {
            self.levels.push(Level::default());
        }
        let level = &mut self.levels[at];
        level.parts += 1;
        let (len, cut) = (ENTRY_BYTES + part.first.len(), cut_after(&part.first));
        match level.group.push(part, len, cut) {
            Some(closed) => self.close_inner(sink, at + 1, closed),
            None => Ok(()),
        }
    }
}

/// What becomes one node, by size and cut marks.
#[derive(Debug)]
struct Group<T> {
    items: Vec<T>,
    bytes: usize,
    is_full: bool,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self { items: Vec::new(), bytes: 0, is_full: false }
    }
}

impl<T> Group<T> {
    /// Takes an item; returns what had to be closed before it. A node has two items at least, so that every level has at
    /// most half as many nodes as the one below.
    fn push(&mut self, item: T, len: usize, cut: bool) -> Option<Vec<T>> {
        let is_closed = (self.is_full || self.bytes + len > NODE_MAX_BYTES) && self.items.len() > 1;
        let closed = is_closed.then(|| std::mem::take(&mut self.items));
        self.bytes = if is_closed { len } else { self.bytes + len };
        self.is_full = cut && self.bytes >= NODE_MIN_BYTES;
        self.items.push(item);
        closed
    }
}

/// The content of a file of these chunks, in lists if there are many.
pub(crate) fn build_list<S: NodeSink>(sink: &mut S, chunks: Vec<ChunkRef>) -> Result<Content, S::Error> {
    if chunks.len() <= ENTRY_CHUNKS_MAX {
        return Ok(Content::Chunks(chunks));
    }
    let mut lists = Vec::new();
    for group in split_ids(chunks, |chunk| chunk.id) {
        let bytes = group.iter().map(|chunk| u64::from(chunk.len)).sum();
        let id = sink.store(FrameKind::List, &ListNode::Chunks(group).encode())?;
        lists.push(ListRef { id, bytes });
    }
    let mut height = 1;
    while lists.len() > ENTRY_CHUNKS_MAX {
        let mut higher = Vec::new();
        for group in split_ids(lists, |list| list.id) {
            let bytes = group.iter().map(|list| list.bytes).sum();
            let id = sink.store(FrameKind::List, &ListNode::Lists(group).encode())?;
            higher.push(ListRef { id, bytes });
        }
        lists = higher;
        height += 1;
    }
    Ok(Content::Lists(height, lists))
}

fn store_node<S: NodeSink>(sink: &mut S, first: Vec<u8>, node: &TreeNode) -> Result<SubtreeRef, S::Error> {
    let totals: Totals = node.totals().expect("sums of real folders fit into 64 bits");
    let node = sink.store(FrameKind::Tree, &node.encode())?;
    Ok(SubtreeRef { first, node, totals })
}

pub(crate) fn entry_len(entry: &Entry) -> usize {
    let content = match &entry.kind {
        forebay_format::EntryKind::File(file) => match &file.content {
            Content::Inline(bytes) => bytes.len(),
            Content::Chunks(chunks) => chunks.len() * 38,
            Content::Lists(_, lists) => lists.len() * 42,
        },
        forebay_format::EntryKind::Dir(_) => 32,
        forebay_format::EntryKind::Symlink(target) => target.len(),
    };
    ENTRY_BYTES + entry.name.len() + content
}

/// Whether the name itself says that a node ends behind it: the same in every version of the folder.
fn cut_after(name: &[u8]) -> bool {
    blake3::hash(name).as_bytes()[0].is_multiple_of(NODE_CUT)
}

fn split_ids<T>(items: Vec<T>, id: impl Fn(&T) -> ChunkId) -> Vec<Vec<T>> {
    let mut groups = vec![Vec::new()];
    for item in items {
        let cut = id(&item).as_bytes()[0].is_multiple_of(LIST_CUT);
        let last = groups.last_mut().expect("there is always a group");
        last.push(item);
        if last.len() >= LIST_MAX || (cut && last.len() >= LIST_MIN) {
            groups.push(Vec::new());
        }
    }
    if groups.last().is_some_and(Vec::is_empty) {
        groups.pop();
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_format::{EntryKind, Timestamp};

    use super::*;

    #[derive(Default)]
    struct Memory(BTreeMap<ChunkId, Vec<u8>>);

    impl NodeSink for Memory {
        type Error = std::convert::Infallible;

        fn store(&mut self, _: FrameKind, plain: &[u8]) -> Result<ChunkId, Self::Error> {
            let id = ChunkId::of(plain);
            self.0.insert(id, plain.to_vec());
            Ok(id)
        }
    }

    fn link(name: String) -> Entry {
        let mtime = Timestamp { seconds: 1, nanos: 0 };
        Entry { name: name.into_bytes(), mode: 0o777, mtime, kind: EntryKind::Symlink(b"target".to_vec()) }
    }

    fn folder(names: impl Iterator<Item = u32>) -> (Memory, Directory) {
        let mut sink = Memory::default();
        let mut builder = DirectoryBuilder::default();
        for n in names {
            let Ok(()) = builder.push(&mut sink, link(format!("name-{n:06}")));
        }
        let Ok(directory) = builder.finish(&mut sink);
        (sink, directory)
    }

    #[test]
    fn a_new_name_in_a_large_folder_moves_few_nodes() {
        let (before, old) = folder((0..60_000).filter(|n| *n != 31_234));
        let (after, new) = folder(0..60_000);
        assert_eq!(old.totals.links + 1, new.totals.links);
        let moved = after.0.keys().filter(|id| !before.0.contains_key(id)).count();
        assert!(before.0.len() > 50 && moved <= 6, "{moved} of {} nodes moved", after.0.len());
    }

    #[test]
    fn lists_keep_the_order_and_the_sum() {
        let chunks: Vec<ChunkRef> =
            (0..300_000_u32).map(|n| ChunkRef { id: ChunkId::of(&n.to_le_bytes()), len: n + 1 }).collect();
        let mut sink = Memory::default();
        let Ok(content) = build_list(&mut sink, chunks.clone());
        assert_eq!(content.len(), Some(chunks.iter().map(|chunk| u64::from(chunk.len)).sum()));
        let Content::Lists(height, mut lists) = content else { panic!("many chunks are listed") };
        let mut found = Vec::new();
        for level in (1..=height).rev() {
            let mut lower = Vec::new();
            for list in lists {
                match ListNode::decode(&sink.0[&list.id], list.bytes).unwrap() {
                    ListNode::Lists(below) => lower.extend(below),
                    ListNode::Chunks(below) if level == 1 => found.extend(below),
                    ListNode::Chunks(_) => panic!("chunks above the lowest level"),
                }
            }
            lists = lower;
        }
        assert_eq!(found, chunks);
    }
}

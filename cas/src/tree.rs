//! Walking manifests: folders in order, files with their chunks.

mod build;

use forebay_format::{
    ChunkId, ChunkRef, Content, Directory, Entry, EntryKind, FileEntry, FrameKind, Limits, ListNode, ListRef, Totals,
    TreeNode,
};

pub(crate) use self::build::{DirectoryBuilder, ENTRY_CHUNKS_MAX, NodeSink, build_list, entry_len};
use crate::repository::{ChunkReader, ReadError};

/// Parts of parts of a folder: 32 levels of at least two parts each hold more names than any disk.
const PARTS_DEPTH_MAX: u32 = 32;

/// Entries that a walk holds of one folder at once, in bytes as [`entry_len`] counts them.
const GROUP_BYTES: usize = 4 << 20;

/// Reads the entries of a folder in order of their names, large folders in parts.
///
/// `path` is the folder's path, for messages.
///
/// # Errors
/// [`ReadError`] if a node is missing, damaged, or contradicts the others.
pub fn entries(reader: &ChunkReader, path: &[u8], directory: &Directory) -> Result<Vec<Entry>, ReadError> {
    let mut all = Vec::new();
    for_each_leaf::<ReadError>(reader, path, directory, |mut leaf| {
        all.append(&mut leaf);
        Ok(())
    })?;
    Ok(all)
}

/// As [`entries`], a part of at least [`GROUP_BYTES`] at a time where there are so many.
fn for_each_group<E: From<ReadError>>(
    reader: &ChunkReader,
    path: &[u8],
    directory: &Directory,
    mut take: impl FnMut(Vec<Entry>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut group, mut bytes) = (Vec::new(), 0);
    for_each_leaf::<E>(reader, path, directory, |mut leaf| {
        bytes += leaf.iter().map(entry_len).sum::<usize>();
        group.append(&mut leaf);
        if bytes < GROUP_BYTES {
            return Ok(());
        }
        bytes = 0;
        take(std::mem::take(&mut group))
    })?;
    take(group)
}

fn for_each_leaf<E: From<ReadError>>(
    reader: &ChunkReader,
    path: &[u8],
    directory: &Directory,
    mut take: impl FnMut(Vec<Entry>) -> Result<(), E>,
) -> Result<(), E> {
    let mut last: Option<Vec<u8>> = None;
    let mut todo = vec![(directory.node, directory.totals, None::<Vec<u8>>, 0)];
    while let Some((node, totals, first, depth)) = todo.pop() {
        let damaged = || ReadError::Tree { path: path.to_owned() };
        if depth > PARTS_DEPTH_MAX {
            return Err(damaged().into());
        }
        match reader.tree(node, totals)? {
            TreeNode::Leaf(leaf) => {
                let starts_right = first.is_none_or(|first| leaf.first().is_some_and(|entry| entry.name == first));
                let follows = last.as_ref().zip(leaf.first()).is_none_or(|(last, next)| *last < next.name);
                if !starts_right || !follows {
                    return Err(damaged().into());
                }
                last = leaf.last().map(|entry| entry.name.clone()).or(last);
                take(leaf)?;
            }
            TreeNode::Inner(parts) => {
                if let Some(ahead) = reader.ahead() {
                    ahead.read(reader.source().as_ref(), FrameKind::Tree, parts.iter().map(|part| part.node));
                }
                if first.is_some_and(|first| parts.first().is_none_or(|part| part.first != first)) {
                    return Err(damaged().into());
                }
                let parts = parts.into_iter().rev();
                todo.extend(parts.map(|part| (part.node, part.totals, Some(part.first), depth + 1)));
            }
        }
    }
    Ok(())
}

/// What a walk does with what it meets. Paths are relative, raw bytes, joined by `/`.
pub trait Visitor {
    /// What stops the walk.
    type Error: From<ReadError>;

    /// A folder, before its entries. `false` leaves its entries out.
    ///
    /// # Errors
    /// Stops the walk.
    fn enter(&mut self, path: &[u8], entry: &Entry, directory: &Directory) -> Result<bool, Self::Error>;

    /// Any entry that is no folder.
    ///
    /// # Errors
    /// Stops the walk.
    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), Self::Error>;
}

/// Walks everything below a folder in order of names, folders before what they hold.
///
/// # Errors
/// What the visitor returns, or [`ReadError`].
pub fn walk<V: Visitor>(reader: &ChunkReader, root: &Directory, visitor: &mut V) -> Result<(), V::Error> {
    walk_below(reader, &mut Vec::new(), root, visitor, 0)
}

fn walk_below<V: Visitor>(
    reader: &ChunkReader,
    path: &mut Vec<u8>,
    directory: &Directory,
    visitor: &mut V,
    depth: u32,
) -> Result<(), V::Error> {
    if depth > Limits::DEFAULT.tree_depth {
        return Err(ReadError::Tree { path: path.clone() }.into());
    }
    for_each_group(reader, &path.clone(), directory, |entries| {
        look_ahead(reader, &entries);
        for entry in entries {
            let parent_len = path.len();
            push_name(path, &entry.name);
            match &entry.kind {
                EntryKind::Dir(below) => {
                    if visitor.enter(path, &entry, below)? {
                        walk_below(reader, path, below, visitor, depth + 1)?;
                    }
                }
                _ => visitor.visit(path, &entry)?,
            }
            path.truncate(parent_len);
        }
        Ok(())
    })
}

/// Has a distant source send what lies below these entries, one level after the other, not one folder after the other.
fn look_ahead(reader: &ChunkReader, entries: &[Entry]) {
    let Some(ahead) = reader.ahead() else { return };
    let mut level: Vec<(ChunkId, Totals)> = entries.iter().filter_map(folder).collect();
    // Where the first of them are here, those below are: they were read with them.
    level.retain(|(node, _)| ahead.peek(*node, |_| ()).is_none());
    while !level.is_empty() {
        ahead.read(reader.source().as_ref(), FrameKind::Tree, level.iter().map(|(node, _)| *node));
        let below = |(node, totals): &(ChunkId, Totals)| {
            let decoded = ahead.peek(*node, |plain| TreeNode::decode(plain, *totals))?.ok()?;
            Some(match decoded {
                TreeNode::Leaf(entries) => entries.iter().filter_map(folder).collect::<Vec<_>>(),
                TreeNode::Inner(parts) => parts.into_iter().map(|part| (part.node, part.totals)).collect(),
            })
        };
        level = level.iter().filter_map(below).flatten().collect();
    }
}

fn folder(entry: &Entry) -> Option<(ChunkId, Totals)> {
    match &entry.kind {
        EntryKind::Dir(directory) => Some((directory.node, directory.totals)),
        _ => None,
    }
}

/// Appends a name to a relative path.
pub fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Finds what a path names; `Ok(None)` if nothing, the empty path names the root.
///
/// # Errors
/// [`ReadError`] if a node is missing or damaged.
pub fn find(reader: &ChunkReader, root: &Directory, path: &[u8]) -> Result<Option<Found>, ReadError> {
    let mut at = Found::Root(*root);
    let mut walked = Vec::new();
    for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        let directory = match &at {
            Found::Root(directory) => *directory,
            Found::Entry(entry) => match &entry.kind {
                EntryKind::Dir(directory) => *directory,
                _ => return Ok(None),
            },
        };
        let mut entries = entries(reader, &walked, &directory)?;
        let Ok(index) = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)) else { return Ok(None) };
        at = Found::Entry(Box::new(entries.swap_remove(index)));
        push_name(&mut walked, name);
    }
    Ok(Some(at))
}

/// What a path names.
#[derive(Debug, Clone)]
pub enum Found {
    /// The root folder.
    Root(Directory),
    /// An entry.
    Entry(Box<Entry>),
}

/// Calls `take` for each chunk of a file in order, lists read as they come.
///
/// # Errors
/// What `take` returns, or [`ReadError`].
pub fn for_each_chunk<E: From<ReadError>>(
    reader: &ChunkReader,
    file: &FileEntry,
    mut take: impl FnMut(ChunkRef) -> Result<(), E>,
) -> Result<(), E> {
    match &file.content {
        Content::Inline(_) => Ok(()),
        Content::Chunks(chunks) => chunks.iter().copied().try_for_each(take),
        Content::Lists(height, lists) => for_each_listed(reader, *height, lists, &mut take),
    }
}

fn for_each_listed<E: From<ReadError>>(
    reader: &ChunkReader,
    height: u8,
    lists: &[ListRef],
    take: &mut impl FnMut(ChunkRef) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(ahead) = reader.ahead() {
        ahead.read(reader.source().as_ref(), FrameKind::List, lists.iter().map(|list| list.id));
    }
    for list in lists {
        match reader.list(list.id, list.bytes)? {
            ListNode::Chunks(chunks) if height == 1 => chunks.into_iter().try_for_each(&mut *take)?,
            ListNode::Lists(lists) if height > 1 => for_each_listed(reader, height - 1, &lists, take)?,
            _ => return Err(wrong_height(list.id).into()),
        }
    }
    Ok(())
}

/// Ids of the list chunks of a file, those of inner lists too.
///
/// # Errors
/// [`ReadError`] if a list is missing or damaged.
pub fn list_ids(reader: &ChunkReader, file: &FileEntry) -> Result<Vec<ChunkId>, ReadError> {
    let Content::Lists(height, lists) = &file.content else { return Ok(Vec::new()) };
    let mut ids = Vec::new();
    let mut todo: Vec<(u8, ListRef)> = lists.iter().map(|list| (*height, *list)).collect();
    while let Some((height, list)) = todo.pop() {
        ids.push(list.id);
        if height > 1 {
            let ListNode::Lists(lists) = reader.list(list.id, list.bytes)? else { return Err(wrong_height(list.id)) };
            todo.extend(lists.into_iter().map(|list| (height - 1, list)));
        }
    }
    Ok(ids)
}

fn wrong_height(id: ChunkId) -> ReadError {
    let kind = FrameKind::List;
    let source = forebay_format::DecodeError::Field { what: "chunk list", field: "height", value: 0 };
    ReadError::Content { id, kind, source }
}

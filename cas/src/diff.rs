//! What changed between two versions; equal sub-trees are never read.

use forebay_format::{Directory, Entry, EntryKind, Limits};

use crate::repository::{ChunkReader, ReadError};
use crate::tree::{entries, push_name};

/// How a name differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second version has it.
    Added,
    /// Only the first version has it.
    Removed,
    /// Both have it with other bytes, another target or another type.
    Modified,
    /// Same bytes; mode or time differ.
    Metadata,
}

/// One name that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative path, raw bytes.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Length of the file in the first version.
    pub old_bytes: u64,
    /// Length of the file in the second version.
    pub new_bytes: u64,
}

/// Finds all differences, in order of names, folders before what they hold.
///
/// # Errors
/// What `take` returns, or [`ReadError`] if a node is missing or damaged.
pub fn diff<E: From<ReadError>>(
    reader: &ChunkReader,
    old: &Directory,
    new: &Directory,
    take: &mut impl FnMut(Change) -> Result<(), E>,
) -> Result<(), E> {
    compare(reader, &mut Vec::new(), Some(old), Some(new), take, 0)
}

fn compare<E: From<ReadError>>(
    reader: &ChunkReader,
    path: &mut Vec<u8>,
    old: Option<&Directory>,
    new: Option<&Directory>,
    take: &mut impl FnMut(Change) -> Result<(), E>,
    depth: u32,
) -> Result<(), E> {
    if old.map(|dir| dir.node) == new.map(|dir| dir.node) {
        return Ok(());
    }
    if depth > Limits::DEFAULT.tree_depth {
        return Err(ReadError::Tree { path: path.clone() }.into());
    }
    let list = |dir: Option<&Directory>| dir.map_or(Ok(Vec::new()), |dir| entries(reader, path, dir));
    let (old, new) = (list(old)?, list(new)?);
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let (before, after) = match (old.peek(), new.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => (old.next(), None),
            (None, Some(_)) => (None, new.next()),
            (Some(one), Some(other)) => match one.name.cmp(&other.name) {
                std::cmp::Ordering::Less => (old.next(), None),
                std::cmp::Ordering::Greater => (None, new.next()),
                std::cmp::Ordering::Equal => (old.next(), new.next()),
            },
        };
        compare_entry(reader, path, before, after, take, depth)?;
    }
}

fn compare_entry<E: From<ReadError>>(
    reader: &ChunkReader,
    path: &mut Vec<u8>,
    old: Option<&Entry>,
    new: Option<&Entry>,
    take: &mut impl FnMut(Change) -> Result<(), E>,
    depth: u32,
) -> Result<(), E> {
    let Some(any) = new.or(old) else { return Ok(()) };
    let parent_len = path.len();
    push_name(path, &any.name);
    let kind = match (old, new) {
        (None, _) => Some(ChangeKind::Added),
        (_, None) => Some(ChangeKind::Removed),
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) if same_content(old, new) => {
            let differs = (old.mode, old.mtime) != (new.mode, new.mtime);
            differs.then_some(ChangeKind::Metadata)
        }
        _ => Some(ChangeKind::Modified),
    };
    if let Some(kind) = kind {
        let is_dir = matches!(any.kind, EntryKind::Dir(_));
        take(Change { path: path.clone(), kind, is_dir, old_bytes: bytes(old), new_bytes: bytes(new) })?;
    }
    compare(reader, path, directory(old), directory(new), take, depth + 1)?;
    path.truncate(parent_len);
    Ok(())
}

/// Whether two entries of one name hold the same, apart from what lies below folders.
fn same_content(old: &Entry, new: &Entry) -> bool {
    match (&old.kind, &new.kind) {
        (EntryKind::Dir(_), EntryKind::Dir(_)) => true,
        (EntryKind::File(old), EntryKind::File(new)) => old.digest == new.digest && old.hard_link == new.hard_link,
        (EntryKind::Symlink(old), EntryKind::Symlink(new)) => old == new,
        _ => false,
    }
}

fn bytes(entry: Option<&Entry>) -> u64 {
    match entry.map(|entry| &entry.kind) {
        Some(EntryKind::File(file)) => file.size,
        _ => 0,
    }
}

fn directory(entry: Option<&Entry>) -> Option<&Directory> {
    match entry.map(|entry| &entry.kind) {
        Some(EntryKind::Dir(directory)) => Some(directory),
        _ => None,
    }
}

//! Which names are hard links of one file.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cas::ReadError;
use forebay_cas::tree::push_name;
use forebay_format::{Directory, Entry, EntryKind, FileDigest, FileEntry, Limits, Timestamp};

use crate::cache::Cache;
use crate::error::TreeError;
use crate::folder::{Access, Folders, Place};

/// The hard links of a tree. The manifest numbers them and says neither how many there are nor where: the whole tree is
/// walked once, when the first of them is met. Trees without hard links never are.
#[derive(Debug)]
pub(crate) struct Links {
    groups: Cache<(), Groups>,
}

/// Names are one file only if everything of it is equal: a manifest that says otherwise has several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    number: u64,
    digest: FileDigest,
    size: u64,
    mode: u32,
    mtime: Timestamp,
}

type Groups = BTreeMap<Key, Group>;

/// One file with several names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The smallest of its paths by bytes, names joined by `/`: the same on every machine.
    pub(crate) first: Box<[u8]>,
    pub(crate) names: u32,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self { groups: Cache::new(u64::MAX) }
    }

    /// The group of an entry; `None` if it has one name only.
    pub(crate) fn group_of(
        &self,
        folders: &Folders,
        root: &Directory,
        entry: &Entry,
        access: Access,
    ) -> Result<Option<Group>, TreeError> {
        let Some(key) = key_of(entry) else { return Ok(None) };
        let groups = match access {
            Access::Cached => self.groups.peek(()).ok_or(TreeError::NotCached)?,
            Access::Load => self.groups.get_or_load((), |_| 0, || walk(folders, root))?,
        };
        Ok(groups.get(&key).cloned())
    }
}

fn key_of(entry: &Entry) -> Option<Key> {
    let EntryKind::File(FileEntry { size, digest, hard_link: Some(number), .. }) = &entry.kind else { return None };
    Some(Key { number: *number, digest: *digest, size: *size, mode: entry.mode, mtime: entry.mtime })
}

fn walk(folders: &Folders, root: &Directory) -> Result<Groups, ReadError> {
    let mut groups = Groups::new();
    let mut path = Vec::new();
    walk_below(folders, root, &mut path, 0, &mut groups).map_err(|error| match error {
        TreeError::Read(error) => shared(&error),
        _ => ReadError::Tree { path: path.clone() },
    })?;
    groups.retain(|_, group| group.names > 1);
    Ok(groups)
}

/// Folders one after the other, each read whole before what is below it: what is kept while one is read is bounded.
fn walk_below(
    folders: &Folders,
    directory: &Directory,
    path: &mut Vec<u8>,
    depth: u32,
    groups: &mut Groups,
) -> Result<(), TreeError> {
    if depth > Limits::DEFAULT.tree_depth {
        return Err(ReadError::Tree { path: path.clone() }.into());
    }
    let mut below = Vec::new();
    folders.list(directory, Place::default(), Access::Load, &mut |entry, _| {
        if let EntryKind::Dir(directory) = &entry.kind {
            below.push((entry.name.clone(), *directory));
        }
        if let Some(key) = key_of(entry) {
            let mut own = path.clone();
            push_name(&mut own, &entry.name);
            let group = groups.entry(key).or_insert_with(|| Group { first: own.as_slice().into(), names: 0 });
            if *own < *group.first {
                group.first = own.into();
            }
            group.names = group.names.saturating_add(1);
        }
        Ok(true)
    })?;
    for (name, directory) in below {
        let parent_len = path.len();
        push_name(path, &name);
        walk_below(folders, &directory, path, depth + 1, groups)?;
        path.truncate(parent_len);
    }
    Ok(())
}

/// An error that others hold too, as one of its own.
fn shared(error: &Arc<ReadError>) -> ReadError {
    ReadError::Tree { path: forebay_cas::chain(&**error).into_bytes() }
}

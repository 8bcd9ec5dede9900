//! A snapshot as a file system, without the kernel: names, attributes, folders, links and bytes.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use forebay_cas::sync::Mutex;
use forebay_cas::tree::push_name;
use forebay_format::{Directory, Entry, EntryKind, FileEntry, Snapshot, Timestamp, Totals};

use crate::cache::Cache;
use crate::chunks::Chunks;
use crate::error::TreeError;
use crate::folder::{Access, EntryRef, Folders, Leaf, Place};
use crate::inode::{Ino, InodeTable};
use crate::layout::Layout;
use crate::links::{Group, Links};
use crate::neighbours::Neighbours;
use crate::read_ahead::Streams;
use crate::source::Source;

/// Bounds of what a [`Tree`] keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeOptions {
    /// Bytes of decoded content, a hard bound: what is kept and what is being read together.
    pub data_bytes: u64,
    /// Bytes of folders, chunk lists and files in use, in all.
    pub metadata_bytes: u64,
    /// Bytes read ahead of a reader that reads in order; 0 for none.
    pub read_ahead_bytes: u64,
}

/// One snapshot, read as it is looked at. Shared by all threads; no lock is held while anything is read.
///
/// What the kernel refers to takes memory too, about 150 bytes a file ([`InodeTable`]).
#[derive(Debug)]
pub struct Tree {
    snapshot: Snapshot,
    inodes: Mutex<InodeTable>,
    folders: Folders,
    links: Links,
    files: Cache<Ino, File>,
    chunks: Chunks,
    neighbours: Mutex<Neighbours>,
    read_ahead_bytes: u64,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Symlink,
}

/// What `stat` shows, owner aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    /// Length in bytes; of a link, of its target.
    pub size: u64,
    /// Bytes that are not holes.
    pub data_bytes: u64,
    /// Permission bits (`0o7777`).
    pub mode: u32,
    /// Modification time.
    pub mtime: Timestamp,
    /// Names of the file; 1 for a folder, whose count would need all of it to be read.
    pub nlink: u32,
}

/// One line of a folder's listing.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'e> {
    /// Raw name.
    pub name: &'e [u8],
    /// Where a listing goes on behind it.
    pub cookie: u64,
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    /// Everything else, if it was asked for; the kernel then has a reference more.
    pub attributes: Option<Attributes>,
}

/// A file that is read, or was lately.
#[derive(Debug)]
struct File {
    path: Vec<u8>,
    layout: Layout,
    streams: Mutex<Streams>,
    /// Files beside it that are to be read ahead once this one has been read.
    neighbours: Mutex<Option<ReadAhead>>,
}

/// Work that nobody waits for: bytes that will probably be wanted.
#[derive(Debug)]
pub struct ReadAhead(Ahead);

#[derive(Debug)]
enum Ahead {
    Range(Arc<File>, Range<u64>),
    Files(Arc<Leaf>, Range<usize>),
}

/// Files of up to this many bytes are read ahead whole; a larger one has a reader of its own soon.
const SMALL_BYTES: u64 = 1 << 20;

enum Node {
    Root,
    Entry(EntryRef),
}

impl Tree {
    /// The tree of a snapshot; reads nothing yet.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, snapshot: Snapshot, options: TreeOptions) -> Self {
        let share = options.metadata_bytes / 4;
        Self {
            snapshot,
            inodes: Mutex::new(InodeTable::new()),
            folders: Folders::new(Arc::clone(&source), 2 * share),
            links: Links::new(),
            files: Cache::new(share),
            chunks: Chunks::new(source, options.data_bytes, share),
            neighbours: Mutex::default(),
            read_ahead_bytes: options.read_ahead_bytes.min(options.data_bytes / 4),
        }
    }

    /// Everything in the snapshot, the root not counted.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.snapshot.root.totals
    }

    /// Finds a name in a folder; the kernel gets a reference to it. `Ok(None)` if there is none.
    ///
    /// # Errors
    /// [`TreeError`]; nothing has changed then.
    pub fn look_up(&self, parent: Ino, name: &[u8], access: Access) -> Result<Option<Attributes>, TreeError> {
        let directory = self.directory(parent, access)?;
        let Some(entry) = self.folders.find(&directory, name, access)? else { return Ok(None) };
        self.refer(parent, entry.get(), access).map(Some)
    }

    /// Takes back references of the kernel. One that was never given is ignored.
    pub fn forget(&self, ino: Ino, count: u64) {
        if let Err(error) = self.inodes.lock().forget(ino, count) {
            tracing::debug!(%error, "the kernel forgets what it does not have");
        }
    }

    /// What `stat` shows.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn attributes(&self, ino: Ino, access: Access) -> Result<Attributes, TreeError> {
        match self.node(ino, access)? {
            Node::Root => Ok(Attributes {
                ino,
                kind: NodeKind::Folder,
                size: 0,
                data_bytes: 0,
                mode: self.snapshot.mode,
                mtime: self.snapshot.mtime,
                nlink: 1,
            }),
            Node::Entry(entry) => {
                let group = self.group(entry.get(), access)?;
                Ok(attributes(ino, entry.get(), group.as_ref()))
            }
        }
    }

    /// Target of a symbolic link, raw bytes.
    ///
    /// # Errors
    /// [`TreeError::WrongKind`] for anything else.
    pub fn target(&self, ino: Ino, access: Access) -> Result<Vec<u8>, TreeError> {
        match self.node(ino, access)? {
            Node::Entry(entry) => match &entry.get().kind {
                EntryKind::Symlink(target) => Ok(target.clone()),
                _ => Err(TreeError::WrongKind),
            },
            Node::Root => Err(TreeError::WrongKind),
        }
    }

    /// Lists a folder from a cookie on (0: from the start, `.` and `..` first) until `take` returns false for a line
    /// that has no room any more. With `refer`, each line but these two has attributes, and a reference is taken.
    ///
    /// # Errors
    /// [`TreeError`]; lines handed out before are right.
    pub fn list(
        &self,
        folder: Ino,
        cookie: u64,
        refer: bool,
        access: Access,
        take: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), TreeError> {
        let directory = self.directory(folder, access)?;
        let parent = self.inodes.lock().parent_and_name(folder).map_or(Ino::ROOT, |(parent, _)| parent);
        for (name, at, ino) in [(&b"."[..], DOT, folder), (b"..", DOT_DOT, parent)] {
            let line = Listed { name, cookie: at, ino, kind: NodeKind::Folder, attributes: None };
            if cookie < at && !take(line) {
                return Ok(());
            }
        }
        let from = place_of(cookie);
        self.folders.list(&directory, from, access, &mut |entry, behind| {
            let (name, cookie) = (entry.name.as_slice(), cookie_of(behind));
            let kind = kind_of(entry);
            if refer {
                let found = self.refer(folder, entry, access)?;
                let taken = take(Listed { name, cookie, ino: found.ino, kind, attributes: Some(found) });
                if !taken {
                    self.forget(found.ino, 1);
                }
                return Ok(taken);
            }
            let ino = self.number(folder, entry, access)?;
            Ok(take(Listed { name, cookie, ino, kind, attributes: None }))
        })
    }

    /// Hands out bytes of a file: as many as asked for, or those up to its end. Returns what should be read ahead.
    ///
    /// # Errors
    /// [`TreeError`]; `take` has not been called then.
    pub fn read(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        access: Access,
        take: impl FnOnce(&[u8]),
    ) -> Result<Option<ReadAhead>, TreeError> {
        let file = self.file(ino, access)?;
        let size = file.layout.size();
        let range = offset.min(size)..offset.saturating_add(len).min(size);
        self.chunks.read(&file.layout, &range, access, take)?;
        if self.read_ahead_bytes == 0 {
            return Ok(None);
        }
        if let Some(neighbours) = file.neighbours.lock().take() {
            return Ok(Some(neighbours));
        }
        let (ahead, in_order) = {
            let mut streams = file.streams.lock();
            let ahead = streams.on_read(&range, size, self.read_ahead_bytes);
            (ahead, streams.is_in_order(&range))
        };
        if in_order {
            self.chunks.use_up(&file.layout, &range);
        }
        Ok(ahead.map(|range| ReadAhead(Ahead::Range(file, range))))
    }

    /// Reads ahead.
    pub fn read_ahead(&self, work: &ReadAhead) {
        let result = match &work.0 {
            Ahead::Range(file, range) => self.chunks.read_ahead(&[(&file.layout, range.clone())]),
            Ahead::Files(leaf, entries) => {
                let files = leaf.entries()[entries.clone()].iter().filter_map(small_file);
                let layouts: Vec<Layout> = files.map(Layout::of).collect();
                let wanted: Vec<_> = layouts.iter().map(|layout| (layout, 0..layout.size())).collect();
                self.chunks.read_ahead(&wanted)
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "nothing was read ahead; whoever wants it will hear why");
        }
    }

    /// Takes note that nobody will do this work.
    pub fn give_up(&self, work: &ReadAhead) {
        match &work.0 {
            Ahead::Range(file, range) => file.streams.lock().not_asked(range),
            Ahead::Files(leaf, entries) => self.neighbours.lock().not_asked(leaf.node(), entries),
        }
    }

    /// First offset at or behind `offset` with data, or without; `None` if there is none.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn seek(&self, ino: Ino, offset: u64, data: bool, access: Access) -> Result<Option<u64>, TreeError> {
        let file = self.file(ino, access)?;
        Ok(if data { file.layout.data_at(offset) } else { file.layout.hole_at(offset) })
    }

    /// Path of a file from the root, names joined by `/`, for messages.
    #[must_use]
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        if let Some(file) = self.files.peek(ino) {
            return file.path.clone();
        }
        let mut path = Vec::new();
        let inodes = self.inodes.lock();
        inodes.path(ino).into_iter().flatten().for_each(|name| push_name(&mut path, name));
        path
    }

    fn node(&self, ino: Ino, access: Access) -> Result<Node, TreeError> {
        let path = self.inodes.lock().path(ino).map(owned).ok_or(TreeError::Stale { ino })?;
        let Some((last, folders)) = path.split_last() else { return Ok(Node::Root) };
        let mut directory = self.snapshot.root;
        for name in folders {
            directory = match &self.find(&directory, name, ino, access)?.get().kind {
                EntryKind::Dir(below) => *below,
                _ => return Err(TreeError::NotFolder),
            };
        }
        self.find(&directory, last, ino, access).map(Node::Entry)
    }

    /// An entry that was there when its number was given.
    fn find(&self, directory: &Directory, name: &[u8], ino: Ino, access: Access) -> Result<EntryRef, TreeError> {
        self.folders.find(directory, name, access)?.ok_or(TreeError::Stale { ino })
    }

    fn directory(&self, ino: Ino, access: Access) -> Result<Directory, TreeError> {
        match self.node(ino, access)? {
            Node::Root => Ok(self.snapshot.root),
            Node::Entry(entry) => match &entry.get().kind {
                EntryKind::Dir(directory) => Ok(*directory),
                _ => Err(TreeError::NotFolder),
            },
        }
    }

    fn file(&self, ino: Ino, access: Access) -> Result<Arc<File>, TreeError> {
        if let Some(file) = self.files.peek(ino) {
            return Ok(file);
        }
        let Node::Entry(entry) = self.node(ino, access)? else { return Err(TreeError::IsFolder) };
        let layout = match &entry.get().kind {
            EntryKind::File(file) => Layout::of(file),
            EntryKind::Dir(_) => return Err(TreeError::IsFolder),
            EntryKind::Symlink(_) => return Err(TreeError::WrongKind),
        };
        let neighbours = Mutex::new(self.neighbours_of(&entry));
        let file = File { path: self.path(ino), layout, streams: Mutex::default(), neighbours };
        let weight = (size_of::<File>() + file.path.len()) as u64 + file.layout.weight();
        Ok(self.files.insert(ino, file, weight))
    }

    /// What to read ahead when this file is wanted for the first time.
    fn neighbours_of(&self, entry: &EntryRef) -> Option<ReadAhead> {
        small_file(entry.get())?;
        let (leaf, at) = entry.place();
        let size = |at: usize| leaf.entries().get(at).map(|entry| small_file(entry).map_or(0, |file| file.size));
        let entries = self.neighbours.lock().on_want(leaf.node(), at, self.read_ahead_bytes, size)?;
        Some(ReadAhead(Ahead::Files(Arc::clone(leaf), entries)))
    }

    fn group(&self, entry: &Entry, access: Access) -> Result<Option<Group>, TreeError> {
        self.links.group_of(&self.folders, &self.snapshot.root, entry, access)
    }

    /// The attributes of an entry, with a reference for the kernel.
    fn refer(&self, folder: Ino, entry: &Entry, access: Access) -> Result<Attributes, TreeError> {
        let group = self.group(entry, access)?;
        let mut inodes = self.inodes.lock();
        let ino = match &group {
            None => inodes.lookup(folder, &entry.name)?,
            Some(group) => refer_path(&mut inodes, &group.first)?,
        };
        Ok(attributes(ino, entry, group.as_ref()))
    }

    /// The number of an entry, without a reference.
    fn number(&self, folder: Ino, entry: &Entry, access: Access) -> Result<Ino, TreeError> {
        let group = self.group(entry, access)?;
        let mut inodes = self.inodes.lock();
        let Some(group) = group else { return Ok(inodes.number(folder, &entry.name)?) };
        let ino = refer_path(&mut inodes, &group.first)?;
        inodes.forget(ino, 1)?;
        Ok(ino)
    }
}

/// Refers to the file at a path. The folders on the way stay as long as the file does.
fn refer_path(inodes: &mut InodeTable, path: &[u8]) -> Result<Ino, TreeError> {
    let mut at = Ino::ROOT;
    for name in path.split(|byte| *byte == b'/') {
        let below = inodes.lookup(at, name);
        inodes.forget(at, u64::from(at != Ino::ROOT))?;
        at = below?;
    }
    Ok(at)
}

fn attributes(ino: Ino, entry: &Entry, group: Option<&Group>) -> Attributes {
    let (size, data_bytes) = match &entry.kind {
        EntryKind::File(file) => (file.size, data_bytes(file)),
        EntryKind::Dir(_) => (0, 0),
        EntryKind::Symlink(target) => (target.len() as u64, 0),
    };
    let nlink = group.map_or(1, |group| group.names);
    Attributes { ino, kind: kind_of(entry), size, data_bytes, mode: entry.mode, mtime: entry.mtime, nlink }
}

/// A file that is read ahead together with others.
fn small_file(entry: &Entry) -> Option<&FileEntry> {
    match &entry.kind {
        EntryKind::File(file) if file.size <= SMALL_BYTES => Some(file),
        _ => None,
    }
}

fn data_bytes(file: &FileEntry) -> u64 {
    file.size - file.holes().iter().map(|hole| hole.len).sum::<u64>()
}

const fn kind_of(entry: &Entry) -> NodeKind {
    match &entry.kind {
        EntryKind::File(_) => NodeKind::File,
        EntryKind::Dir(_) => NodeKind::Folder,
        EntryKind::Symlink(_) => NodeKind::Symlink,
    }
}

fn owned(names: Vec<&[u8]>) -> Vec<Box<[u8]>> {
    names.into_iter().map(Into::into).collect()
}

/// Cookie behind `.`.
const DOT: u64 = 1;
/// Cookie behind `..`; those of entries have higher halves of at least 1.
const DOT_DOT: u64 = 2;

/// The part counts from 1 in the higher half, the entry behind which the listing goes on in the lower one.
fn cookie_of(behind: Place) -> u64 {
    ((u64::from(behind.part) + 1) << 32) | u64::from(behind.entry)
}

fn place_of(cookie: u64) -> Place {
    let half = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    match (cookie >> 32).checked_sub(1) {
        None => Place::default(),
        Some(part) => Place { part: half(part), entry: half(cookie) },
    }
}

#[cfg(test)]
mod tests;

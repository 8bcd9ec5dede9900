//! The Merkle tree of a folder: nodes of entries, and lists of chunks for large files.

use minicbor::{Decode, Encode};

use crate::name::{ENTRY_NAME_MAX, check_entry_name};
use crate::{ChunkId, DecodeError, FileDigest, Limits, Timestamp, cbor};

/// Files of at most this many bytes stand in their entry itself: an id, a row and a frame header would cost more than
/// a tenth of them.
pub const INLINE_MAX: usize = 4096;
/// Holes are runs of zero bytes of this length at multiples of it, whether the file system keeps them as holes or as
/// zeros: what a file is depends on its bytes alone.
pub const HOLE_BLOCK: u64 = 64 << 10;

const NODE: &str = "tree node";
const LIST: &str = "chunk list";
const MODE_BITS: u32 = 0o7777;
/// Longest target of a symbolic link (`PATH_MAX`).
const TARGET_MAX: usize = 4096;
/// Lists of lists of chunks are at most this high: 1,024^4 chunks are more than a file can have.
const LIST_HEIGHT_MAX: u8 = 4;

/// What a sub-tree holds in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(array)]
pub struct Totals {
    /// Regular files.
    #[n(0)]
    pub files: u64,
    /// Folders, the root of the sub-tree not counted.
    #[n(1)]
    pub dirs: u64,
    /// Symbolic links.
    #[n(2)]
    pub links: u64,
    /// Sum of the files' lengths in bytes, holes included.
    #[n(3)]
    pub bytes: u64,
}

impl Totals {
    /// Adds another sub-tree; `None` if a sum does not fit, which only forged numbers can do.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            files: self.files.checked_add(other.files)?,
            dirs: self.dirs.checked_add(other.dirs)?,
            links: self.links.checked_add(other.links)?,
            bytes: self.bytes.checked_add(other.bytes)?,
        })
    }
}

/// A piece of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct ChunkRef {
    /// The chunk.
    #[n(0)]
    pub id: ChunkId,
    /// Its plain length in bytes, not 0.
    #[n(1)]
    pub len: u32,
}

/// A list of chunks that is itself a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ListRef {
    /// The chunk of kind list.
    #[n(0)]
    pub id: ChunkId,
    /// Content bytes below it, not 0.
    #[n(1)]
    pub bytes: u64,
}

/// A chunk of kind list: either chunks or lists one level lower, at least one. Each part holds at least one byte, so
/// that reading a file takes no more steps than it claims to have bytes, whatever its lists look like.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ListNode {
    /// Pieces of content, in order.
    #[n(0)]
    Chunks(#[n(0)] Vec<ChunkRef>),
    /// Lists, in order.
    #[n(1)]
    Lists(#[n(0)] Vec<ListRef>),
}

impl ListNode {
    /// The bytes that are stored as a chunk of kind list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Reads a list and checks that it holds as many content bytes as `bytes_below` says.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, parts without bytes, or a wrong sum.
    pub fn decode(bytes: &[u8], bytes_below: u64) -> Result<Self, DecodeError> {
        let node: Self = cbor::decode(LIST, bytes, Limits::DEFAULT.node_bytes.into())?;
        let (parts, actual) = match &node {
            Self::Chunks(chunks) => {
                check_chunks(LIST, chunks)?;
                (chunks.len(), sum(chunks.iter().map(|chunk| chunk.len.into())))
            }
            Self::Lists(lists) => {
                check_lists(LIST, lists)?;
                (lists.len(), sum(lists.iter().map(|list| list.bytes)))
            }
        };
        if parts == 0 {
            return Err(DecodeError::Field { what: LIST, field: "number of parts", value: 0 });
        }
        check_sum(LIST, "content length", bytes_below, actual)?;
        Ok(node)
    }
}

/// Where the bytes of a file are, holes left out.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Content {
    /// In the entry itself: at most [`INLINE_MAX`] bytes.
    #[n(0)]
    Inline(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
    /// In these chunks, in order.
    #[n(1)]
    Chunks(#[n(0)] Vec<ChunkRef>),
    /// In the chunks below these lists, all of the height given (1: lists of chunks).
    #[n(2)]
    Lists(#[n(0)] u8, #[n(1)] Vec<ListRef>),
}

impl Content {
    /// Content bytes, holes not counted; `None` if the sum does not fit, which only forged numbers can do.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Inline(bytes) => Some(bytes.len() as u64),
            Self::Chunks(chunks) => sum(chunks.iter().map(|chunk| chunk.len.into())),
            Self::Lists(_, lists) => sum(lists.iter().map(|list| list.bytes)),
        }
    }

    /// Whether there are no content bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// A run of zero bytes that no chunk covers; offset and length in bytes, multiples of [`HOLE_BLOCK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Hole {
    /// First byte.
    #[n(0)]
    pub offset: u64,
    /// Number of bytes.
    #[n(1)]
    pub len: u64,
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileEntry {
    /// Length in bytes, holes included.
    #[n(0)]
    pub size: u64,
    /// BLAKE3 of the whole file, equal to what `b3sum` prints.
    #[n(1)]
    pub digest: FileDigest,
    /// Its bytes without the holes.
    #[n(2)]
    pub content: Content,
    /// Its holes, in order, not touching each other.
    #[n(3)]
    pub holes: Option<Vec<Hole>>,
    /// Files with the same number are one file under several names.
    #[n(4)]
    pub hard_link: Option<u64>,
}

impl FileEntry {
    /// The holes, none or more.
    #[must_use]
    pub fn holes(&self) -> &[Hole] {
        self.holes.as_deref().unwrap_or_default()
    }
}

/// A folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Directory {
    /// Its node, a chunk of kind tree.
    #[n(0)]
    pub node: ChunkId,
    /// What is below it.
    #[n(1)]
    pub totals: Totals,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum EntryKind {
    /// A regular file.
    #[n(0)]
    File(#[n(0)] FileEntry),
    /// A folder.
    #[n(1)]
    Dir(#[n(0)] Directory),
    /// A symbolic link with its target, raw bytes.
    #[n(2)]
    Symlink(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Raw bytes, as [`crate::check_entry_name`] allows them.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Permission bits (`0o7777`).
    #[n(1)]
    pub mode: u32,
    /// Modification time.
    #[n(2)]
    pub mtime: Timestamp,
    /// What it is.
    #[n(3)]
    pub kind: EntryKind,
}

impl Entry {
    /// What this entry adds to its folder's totals.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        match &self.kind {
            EntryKind::File(file) => Some(Totals { files: 1, bytes: file.size, ..Totals::default() }),
            EntryKind::Dir(dir) => dir.totals.checked_add(Totals { dirs: 1, ..Totals::default() }),
            EntryKind::Symlink(_) => Some(Totals { links: 1, ..Totals::default() }),
        }
    }
}

/// A part of a large folder.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SubtreeRef {
    /// First name below it.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub first: Vec<u8>,
    /// Its node, a chunk of kind tree.
    #[n(1)]
    pub node: ChunkId,
    /// What is below it.
    #[n(2)]
    pub totals: Totals,
}

/// A chunk of kind tree: the entries of a folder, or the parts of a large one.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum TreeNode {
    /// Entries sorted by raw name bytes, none twice.
    #[n(0)]
    Leaf(#[n(0)] Vec<Entry>),
    /// Parts sorted by their first names: at least one, none of them empty.
    #[n(1)]
    Inner(#[n(0)] Vec<SubtreeRef>),
}

impl TreeNode {
    /// The bytes that are stored as a chunk of kind tree.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Sum of what the entries or parts hold; `None` if it does not fit.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        let add = |sum: Totals, next: Option<Totals>| sum.checked_add(next?);
        match self {
            Self::Leaf(entries) => entries.iter().try_fold(Totals::default(), |sum, entry| add(sum, entry.totals())),
            Self::Inner(parts) => parts.iter().try_fold(Totals::default(), |sum, part| add(sum, Some(part.totals))),
        }
    }

    /// Reads a node and checks everything a reader relies on: order, names, lengths, totals.
    ///
    /// # Errors
    /// [`DecodeError::EntryName`] names the entry that could lead out of its folder; other variants for damage.
    pub fn decode(bytes: &[u8], totals: Totals) -> Result<Self, DecodeError> {
        let node: Self = cbor::decode(NODE, bytes, Limits::DEFAULT.node_bytes.into())?;
        match &node {
            Self::Leaf(entries) => {
                entries.iter().try_for_each(check_entry)?;
                check_order(entries.iter().map(|entry| entry.name.as_slice()))?;
            }
            Self::Inner(parts) => {
                check_parts(parts)?;
                check_order(parts.iter().map(|part| part.first.as_slice()))?;
            }
        }
        if node.totals() != Some(totals) {
            let actual = node.totals().map_or(u64::MAX, |totals| totals.bytes);
            return Err(DecodeError::Contradiction { what: NODE, field: "totals", claimed: totals.bytes, actual });
        }
        Ok(node)
    }
}

fn check_name(name: &[u8]) -> Result<(), DecodeError> {
    check_entry_name(name).map_err(|source| {
        // A forged name can be as long as its node; a message shows no more than the longest right one.
        let shown = &name[..name.len().min(ENTRY_NAME_MAX)];
        DecodeError::EntryName { name: String::from_utf8_lossy(shown).into_owned(), source }
    })
}

/// Only an empty folder has no entries, and that is one empty leaf: there is one tree for each folder, and walking it
/// takes no more steps than its totals say.
fn check_parts(parts: &[SubtreeRef]) -> Result<(), DecodeError> {
    let field = |field, value| Err(DecodeError::Field { what: NODE, field, value });
    if parts.is_empty() {
        return field("number of parts", 0);
    }
    for (index, part) in (0..).zip(parts) {
        check_name(&part.first)?;
        let Totals { files, dirs, links, .. } = part.totals;
        if files == 0 && dirs == 0 && links == 0 {
            return field("empty part", index);
        }
    }
    Ok(())
}

fn check_chunks(what: &'static str, chunks: &[ChunkRef]) -> Result<(), DecodeError> {
    let good = 1..=Limits::DEFAULT.chunk_bytes;
    match chunks.iter().find(|chunk| !good.contains(&chunk.len)) {
        Some(bad) => Err(DecodeError::Field { what, field: "chunk length", value: bad.len.into() }),
        None => Ok(()),
    }
}

fn check_lists(what: &'static str, lists: &[ListRef]) -> Result<(), DecodeError> {
    if lists.iter().any(|list| list.bytes == 0) {
        return Err(DecodeError::Field { what, field: "list length", value: 0 });
    }
    Ok(())
}

fn check_order<'n>(names: impl Iterator<Item = &'n [u8]>) -> Result<(), DecodeError> {
    let mut last: Option<&[u8]> = None;
    for (index, name) in names.enumerate() {
        if last.is_some_and(|last| last >= name) {
            return Err(DecodeError::Order { what: NODE, index: index as u64 });
        }
        last = Some(name);
    }
    Ok(())
}

fn check_entry(entry: &Entry) -> Result<(), DecodeError> {
    check_name(&entry.name)?;
    let field = |field, value| Err(DecodeError::Field { what: NODE, field, value });
    if entry.mode & !MODE_BITS != 0 {
        return field("mode", entry.mode.into());
    }
    if !entry.mtime.is_valid() {
        return field("time", entry.mtime.nanos.into());
    }
    match &entry.kind {
        EntryKind::File(file) => check_file(file),
        EntryKind::Dir(_) => Ok(()),
        EntryKind::Symlink(target) if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) => {
            field("link target", target.len() as u64)
        }
        EntryKind::Symlink(_) => Ok(()),
    }
}

fn check_file(file: &FileEntry) -> Result<(), DecodeError> {
    let field = |field, value| Err(DecodeError::Field { what: NODE, field, value });
    match &file.content {
        Content::Inline(bytes) if bytes.len() > INLINE_MAX => return field("inline length", bytes.len() as u64),
        Content::Inline(_) => {}
        Content::Chunks(chunks) => check_chunks(NODE, chunks)?,
        Content::Lists(height, _) if *height == 0 || *height > LIST_HEIGHT_MAX => {
            return field("list height", (*height).into());
        }
        Content::Lists(_, lists) if lists.is_empty() => return field("number of lists", 0),
        Content::Lists(_, lists) => check_lists(NODE, lists)?,
    }
    let mut end = None;
    for hole in file.holes() {
        let behind = hole.offset.checked_add(hole.len);
        let aligned = hole.offset.is_multiple_of(HOLE_BLOCK) && hole.len.is_multiple_of(HOLE_BLOCK) && hole.len > 0;
        let apart = end.is_none_or(|end| hole.offset > end);
        if !aligned || !apart || behind.is_none_or(|behind| behind > file.size) {
            return field("hole", hole.offset);
        }
        end = behind;
    }
    if file.holes.as_ref().is_some_and(Vec::is_empty) {
        return Err(DecodeError::NotCanonical { what: NODE });
    }
    let holes = sum(file.holes().iter().map(|hole| hole.len));
    let parts = file.content.len().zip(holes).and_then(|(content, holes)| content.checked_add(holes));
    check_sum(NODE, "file length", file.size, parts)
}

fn check_sum(what: &'static str, field: &'static str, claimed: u64, actual: Option<u64>) -> Result<(), DecodeError> {
    match actual {
        Some(actual) if actual == claimed => Ok(()),
        _ => {
            let actual = actual.unwrap_or(u64::MAX);
            Err(DecodeError::Contradiction { what, field, claimed, actual })
        }
    }
}

fn sum(mut lengths: impl Iterator<Item = u64>) -> Option<u64> {
    lengths.try_fold(0_u64, u64::checked_add)
}

//! What a new chunk may be a patch of: its neighbour in the version that the push starts from.

use forebay_format::{ChunkId, ChunkRef, Directory, Entry, EntryKind, FileEntry, FrameKind, PATCH_DEPTH_MAX};

use crate::codec::Base;
use crate::index::LocalIndex;
use crate::numbers::length;
use crate::repository::{ChunkReader, ReadError};
use crate::tree::{Found, entries, find, for_each_chunk};

/// Chunks of an old file that are looked at: 16 MiB of them a thread.
const OLD_CHUNKS_MAX: usize = 256 << 10;
/// Old chunks tried for a new one. An edit that moves a cut makes a new chunk of two old ones.
const TRIES: usize = 2;
/// A known chunk is looked for this many chunks before and behind where it should be.
const NEARBY: usize = 32;
/// After so many chunks in a row that had nothing of their neighbours...
const FAILURES: u32 = 4;
/// ... only one in so many is tried: a file that was written anew costs next to nothing.
const RARELY: u32 = 16;

/// The version whose chunks are at hand.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) reader: ChunkReader,
    pub(super) root: Directory,
}

/// Finds bases for the chunks of one file after the other; one a thread. Whatever cannot be read is no base: nothing is
/// lost by storing a chunk whole.
#[derive(Debug)]
pub(super) struct Bases<'p> {
    parent: Option<&'p Parent>,
    /// The folder looked into last: neighbouring files lie in one.
    folder: Option<(Vec<u8>, Vec<Entry>)>,
    path: Vec<u8>,
    old: Option<OldFile>,
    /// The last chunk of this file that is stored already, with its offset.
    last_known: Option<(u64, ChunkId)>,
    failures: u32,
    plain: Vec<u8>,
}

impl<'p> Bases<'p> {
    pub(super) const fn new(parent: Option<&'p Parent>) -> Self {
        Self { parent, folder: None, path: Vec::new(), old: None, last_known: None, failures: 0, plain: Vec::new() }
    }

    /// The next chunks are of this file.
    pub(super) fn begin(&mut self, path: &[u8]) {
        self.path.clear();
        self.path.extend_from_slice(path);
        (self.old, self.last_known, self.failures) = (None, None, 0);
    }

    /// A chunk of the file is stored already: it tells how far the bytes behind it have moved. Offsets count content
    /// without holes.
    pub(super) fn known(&mut self, offset: u64, id: ChunkId) {
        match &mut self.old {
            Some(old) => old.align(offset, id, NEARBY),
            None => self.last_known = Some((offset, id)),
        }
    }

    /// Which old chunks lie where this new one does, those first that have most of it.
    pub(super) fn candidates(&mut self, offset: u64, len: usize) -> Vec<ChunkRef> {
        let Some(parent) = self.parent else { return Vec::new() };
        if self.failures >= FAILURES && !self.failures.is_multiple_of(RARELY) {
            self.failures += 1;
            return Vec::new();
        }
        if self.old.is_none() {
            let mut old = self.open(parent).unwrap_or_else(|error| {
                tracing::debug!(%error, path = %String::from_utf8_lossy(&self.path), "no bases of this file");
                OldFile::default()
            });
            if let Some((offset, id)) = self.last_known {
                old.align(offset, id, OLD_CHUNKS_MAX);
            }
            self.old = Some(old);
        }
        self.old.as_ref().map(|old| old.overlapping(offset, length(len))).unwrap_or_default()
    }

    /// Reads a base, verified.
    pub(super) fn read(&mut self, index: &LocalIndex, chunk: ChunkRef) -> Option<Base<'_>> {
        let parent = self.parent?;
        let places = index.locate(chunk.id).ok()?;
        let depth = places.iter().find(|place| place.row.header.kind == FrameKind::Data)?.row.header.depth;
        if depth >= PATCH_DEPTH_MAX {
            return None;
        }
        self.plain = parent.reader.base(chunk.id, depth + 1).ok()?;
        Some(Base { id: chunk.id, depth, plain: &self.plain })
    }

    /// Whether a chunk that was tried became a patch.
    pub(super) const fn tell(&mut self, is_patch: bool) {
        self.failures = if is_patch { 0 } else { self.failures + 1 };
    }

    /// The file of the same path; empty if there was none.
    fn open(&mut self, parent: &Parent) -> Result<OldFile, ReadError> {
        let cut = self.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match cut {
            Some(cut) => (&self.path[..cut], &self.path[cut + 1..]),
            None => (&[][..], &self.path[..]),
        };
        if self.folder.as_ref().is_none_or(|(path, _)| path != above) {
            let directory = match find(&parent.reader, &parent.root, above)? {
                Some(Found::Root(root)) => Some(root),
                Some(Found::Entry(entry)) => match entry.kind {
                    EntryKind::Dir(directory) => Some(directory),
                    _ => None,
                },
                None => None,
            };
            let listed = directory.map_or(Ok(Vec::new()), |directory| entries(&parent.reader, above, &directory))?;
            self.folder = Some((above.to_vec(), listed));
        }
        let entries = self.folder.as_ref().map_or(&[][..], |(_, entries)| entries);
        match entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)) {
            Ok(found) => match &entries[found].kind {
                EntryKind::File(file) => OldFile::of(&parent.reader, file),
                _ => Ok(OldFile::default()),
            },
            Err(_) => Ok(OldFile::default()),
        }
    }
}

/// The chunks of a file in the parent version.
#[derive(Debug, Default)]
struct OldFile {
    /// Each with its offset.
    chunks: Vec<(u64, ChunkRef)>,
    /// Old offset of what is at offset 0 now, as far as the last known chunk tells.
    shift: i64,
}

impl OldFile {
    fn of(reader: &ChunkReader, file: &FileEntry) -> Result<Self, ReadError> {
        let mut chunks = Vec::new();
        let mut offset = 0;
        for_each_chunk::<ReadError>(reader, file, |chunk| {
            if chunks.len() < OLD_CHUNKS_MAX {
                chunks.push((offset, chunk));
            }
            offset += u64::from(chunk.len);
            Ok(())
        })?;
        Ok(Self { chunks, shift: 0 })
    }

    /// Finds a known chunk near where it should be, the nearest first.
    fn align(&mut self, offset: u64, id: ChunkId, nearby: usize) {
        let expected = self.at(offset.saturating_add_signed(self.shift));
        let (before, behind) = self.chunks.split_at(expected);
        let found = behind
            .iter()
            .take(nearby)
            .find(|(_, chunk)| chunk.id == id)
            .or_else(|| before.iter().rev().take(nearby).find(|(_, chunk)| chunk.id == id));
        if let Some((old_offset, _)) = found {
            self.shift = old_offset.wrapping_sub(offset).cast_signed();
        }
    }

    fn overlapping(&self, offset: u64, len: u64) -> Vec<ChunkRef> {
        let start = offset.saturating_add_signed(self.shift);
        let end = start + len;
        let overlap = |(offset, chunk): &(u64, ChunkRef)| {
            (offset + u64::from(chunk.len)).min(end).saturating_sub(start.max(*offset))
        };
        let from = self.at(start);
        let overlapping = self.chunks[from..].iter().take_while(|(offset, _)| *offset < end);
        let mut found: Vec<_> = overlapping.map(|chunk| (overlap(chunk), chunk.1)).collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        // A file that was longer once: its last chunk is the nearest there is.
        if found.is_empty() {
            found.extend(self.chunks.last().map(|(_, chunk)| (0, *chunk)));
        }
        found.into_iter().take(TRIES).map(|(_, chunk)| chunk).collect()
    }

    /// Number of the chunk that an old offset lies in.
    fn at(&self, offset: u64) -> usize {
        self.chunks.partition_point(|(start, _)| *start <= offset).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(word: &str, len: u32) -> ChunkRef {
        ChunkRef { id: ChunkId::of(word.as_bytes()), len }
    }

    /// Chunks a to e of 100 bytes each.
    fn old() -> OldFile {
        let chunks = ["a", "b", "c", "d", "e"].iter().zip(0..).map(|(word, at)| (at * 100, chunk(word, 100))).collect();
        OldFile { chunks, shift: 0 }
    }

    #[test]
    fn neighbours_lie_where_the_new_chunk_does() {
        let mut old = old();
        let ids =
            |old: &OldFile, offset, len| old.overlapping(offset, len).iter().map(|one| one.id).collect::<Vec<_>>();
        let id = |word: &str| chunk(word, 0).id;
        assert_eq!(ids(&old, 100, 100), [id("b")]);
        assert_eq!(ids(&old, 130, 100), [id("b"), id("c")]);
        assert_eq!(ids(&old, 170, 150), [id("c"), id("b")]);
        assert_eq!(ids(&old, 900, 50), [id("e")]);
        // 1,000 bytes were put before chunk c.
        old.align(1200, id("c"), NEARBY);
        assert_eq!(old.shift, -1000);
        assert_eq!(ids(&old, 1300, 100), [id("d")]);
        assert_eq!(ids(&old, 0, 10), [id("a")]);
        // 250 bytes before chunk e were taken out.
        old.align(150, id("e"), NEARBY);
        assert_eq!((old.shift, ids(&old, 150, 100)), (250, vec![id("e")]));
        old.align(150, id("nowhere"), NEARBY);
        assert_eq!(old.shift, 250);
        assert_eq!(ids(&OldFile::default(), 5, 5), []);
    }
}

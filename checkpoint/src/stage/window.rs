//! Where each chunk of a checkpoint lies on a device, and in which windows it gets there.

use std::collections::VecDeque;

use forebay_cas::content::for_each_place;
use forebay_cas::numbers::{index, length};
use forebay_cas::pieces::{Piece, PieceReader};
use forebay_cas::tree::{Visitor, walk};
use forebay_cas::{ChunkReader, ReadError};
use forebay_format::{Content, Directory, Entry, EntryKind, FileEntry};

use super::{FILE_ALIGNMENT, SLAB_BYTES, StageError};

/// A gap of zeros up to this is copied with its neighbours; a longer one, a hole, is left as the device has it.
const GAP_BYTES: u64 = 64 << 10;

/// A file and its place.
#[derive(Debug)]
pub(super) struct StagedFile {
    pub(super) path: Vec<u8>,
    pub(super) offset: u64,
    pub(super) entry: FileEntry,
}

/// All files of a checkpoint, one after the other.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) files: Vec<StagedFile>,
    /// Bytes from the first file to the end of the last.
    pub(super) len: u64,
}

impl Space {
    /// Walks the manifest.
    pub(super) fn of(reader: &ChunkReader, root: &Directory) -> Result<Self, ReadError> {
        let mut space = Self { files: Vec::new(), len: 0 };
        walk(reader, root, &mut space)?;
        Ok(space)
    }
}

impl Visitor for Space {
    type Error = ReadError;

    fn enter(&mut self, _: &[u8], _: &Entry, _: &Directory) -> Result<bool, ReadError> {
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        if let EntryKind::File(file) = &entry.kind {
            let offset = self.len.next_multiple_of(FILE_ALIGNMENT);
            let end = offset.checked_add(file.size).ok_or_else(|| ReadError::Tree { path: path.to_vec() })?;
            self.files.push(StagedFile { path: path.to_vec(), offset, entry: file.clone() });
            self.len = end;
        }
        Ok(())
    }
}

/// Bytes that pass through one slab together.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Where on the device.
    pub(super) offset: u64,
    /// How many bytes.
    pub(super) len: usize,
    /// In order; offsets count from the start of the window, slots are numbers of files.
    pieces: Vec<Piece>,
    /// Files whose bytes stand in the manifest: number and offset in the window.
    inline: Vec<(usize, usize)>,
}

impl Window {
    /// Reads, decodes and verifies the window's chunks into a slab.
    pub(super) fn fill(
        &self,
        files: &[StagedFile],
        pieces: &mut PieceReader<'_>,
        slab: &mut [u8],
    ) -> Result<(), StageError> {
        let slab = &mut slab[..self.len];
        self.clear_gaps(files, slab);
        for (file, at) in &self.inline {
            if let Content::Inline(bytes) = &files[*file].entry.content {
                slab[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
        }
        let read = pieces.read::<ReadError>(self.pieces.clone(), |piece, bytes| {
            let at = index(piece.offset);
            slab[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        read.map_err(|source| self.name(files, source))
    }

    /// A slab still has the bytes of the window before.
    fn clear_gaps(&self, files: &[StagedFile], slab: &mut [u8]) {
        let chunks = self.pieces.iter().map(|piece| (index(piece.offset), index(piece.len.into())));
        let inline = self.inline.iter().map(|(file, at)| (*at, index(files[*file].entry.size)));
        let mut taken: Vec<(usize, usize)> = chunks.chain(inline).collect();
        taken.sort_unstable();
        let mut end = 0;
        for (at, len) in taken {
            slab[end..at].fill(0);
            end = at + len;
        }
        slab[end..].fill(0);
    }

    /// The file that a chunk which cannot be read belongs to.
    fn name(&self, files: &[StagedFile], source: ReadError) -> StageError {
        let piece = source.chunk().and_then(|id| self.pieces.iter().find(|piece| piece.id == id));
        match piece {
            Some(piece) => StageError::File { path: files[piece.slot].path.clone(), source },
            None => source.into(),
        }
    }
}

/// Cuts the space into windows, reading lists of chunks as it comes to their files.
pub(super) struct Windows<'w> {
    reader: &'w ChunkReader,
    files: &'w [StagedFile],
    next_file: usize,
    /// What is left of the files read so far.
    items: VecDeque<Piece>,
}

impl<'w> Windows<'w> {
    pub(super) fn new(reader: &'w ChunkReader, files: &'w [StagedFile]) -> Self {
        Self { reader, files, next_file: 0, items: VecDeque::new() }
    }

    /// The next window; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Window>, StageError> {
        let mut window = Window::default();
        while let Some(item) = self.peek()? {
            let (start, end) = (item.offset, item.offset + u64::from(item.len));
            let so_far = window.offset + length(window.len);
            if window.len == 0 {
                window.offset = start;
            } else if start > so_far + GAP_BYTES || end - window.offset > length(SLAB_BYTES) {
                break;
            }
            self.items.pop_front();
            let at = start - window.offset;
            match &self.files[item.slot].entry.content {
                Content::Inline(_) => window.inline.push((item.slot, index(at))),
                _ => window.pieces.push(Piece { offset: at, ..item }),
            }
            window.len = index(end - window.offset);
        }
        Ok((window.len > 0).then_some(window))
    }

    /// The next piece, its offset counted on the device. An inline file is one piece, whose id means nothing.
    fn peek(&mut self) -> Result<Option<Piece>, StageError> {
        while self.items.is_empty() && self.next_file < self.files.len() {
            let (slot, file) = (self.next_file, &self.files[self.next_file]);
            self.next_file += 1;
            if let Content::Inline(bytes) = &file.entry.content {
                let len = u32::try_from(bytes.len()).expect("inline content has at most 4 KiB");
                let id = forebay_format::ChunkId::from_bytes([0; 32]);
                self.items.extend((len > 0).then_some(Piece { id, len, slot, offset: file.offset }));
                continue;
            }
            let items = &mut self.items;
            let placed = for_each_place::<ReadError>(self.reader, &file.entry, |offset, chunk| {
                items.push_back(Piece { id: chunk.id, len: chunk.len, slot, offset: file.offset + offset });
                Ok(())
            });
            placed.map_err(|source| StageError::File { path: file.path.clone(), source })?;
        }
        Ok(self.items.front().copied())
    }
}

const _: () =
    assert!(SLAB_BYTES >= forebay_format::Limits::DEFAULT.chunk_bytes as usize, "every chunk fits into a slab");

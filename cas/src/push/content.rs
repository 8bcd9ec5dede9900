//! Reading files: cut, hash, find holes, notice changes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use forebay_format::{ChunkId, ChunkRef, Content, FileDigest, HOLE_BLOCK, Hole, INLINE_MAX, Timestamp};
use rustix::fs::{FileType, Mode, OFlags};

use super::bases::Bases;
use super::store::{Sink, Store};
use super::{PushError, file_warning};
use crate::chunker::{Chunker, FastCdc};
use crate::index::{FileStamp, LocalIndex, StatRecord};
use crate::numbers::{index, length};
use crate::progress::{Notices, Progress};
use crate::repository::Repository;
use crate::scan::{ScanFile, stamp};
use crate::tree::build_list;

/// Bytes read at once; a multiple of [`HOLE_BLOCK`], so that blocks of zeros are seen whole.
const READ_BYTES: usize = 1 << 20;
static ZERO_BLOCK: [u8; index(HOLE_BLOCK)] = [0; index(HOLE_BLOCK)];

/// What became of a file.
#[derive(Debug)]
pub(super) enum FileOutcome {
    /// Read and stored whole, at this time.
    Stored(StatRecord, Timestamp),
    /// Not read: it is as it was when it was stored last.
    Reused(StatRecord),
    /// It changed while it was read; what was read is stored.
    Changed(StatRecord),
    /// It was not there any more.
    Vanished,
    /// Another name of a file that has its own outcome.
    OtherName,
}

impl FileOutcome {
    /// Where the content is, if there is any of its own.
    pub(super) const fn stored(&self) -> Option<&StatRecord> {
        match self {
            Self::Stored(record, _) | Self::Reused(record) | Self::Changed(record) => Some(record),
            Self::Vanished | Self::OtherName => None,
        }
    }
}

/// Warns of a file that was not read as it was.
pub(super) fn tell(outcome: &FileOutcome, path: &Path, notices: &dyn Notices) {
    match outcome {
        FileOutcome::Changed(_) => notices.warn(file_warning("changed", path, "changed while it was read")),
        FileOutcome::Vanished => notices.warn(file_warning("vanished", path, "vanished before it was read")),
        FileOutcome::Stored(..) | FileOutcome::Reused(_) | FileOutcome::OtherName => {}
    }
}

/// One thread that stores files.
pub(super) struct Worker<'w, 's> {
    repository: &'w Repository,
    index: &'w LocalIndex,
    store: &'w Store<'s>,
    progress: &'w Progress,
    chunker: FastCdc,
    sink: Sink<'w, 's>,
    bases: Bases<'w>,
    block: Vec<u8>,
    data: Vec<u8>,
}

impl<'w, 's> Worker<'w, 's> {
    pub(super) fn new(
        repository: &'w Repository,
        index: &'w LocalIndex,
        store: &'w Store<'s>,
        progress: &'w Progress,
    ) -> Self {
        Self {
            repository,
            index,
            store,
            progress,
            chunker: FastCdc::new(&repository.config.chunker),
            sink: store.data_sink(),
            bases: Bases::new(store.parent.as_ref()),
            block: vec![0; READ_BYTES],
            data: Vec::new(),
        }
    }

    /// Hands on what is still in memory.
    pub(super) fn finish(&mut self) -> Result<(), PushError> {
        self.sink.finish()
    }

    /// Stores one file unless it is known to be unchanged.
    /// `path` is relative to the root, `source` where the file is.
    pub(super) fn store_file(&mut self, file: &ScanFile, path: &Path, source: &Path) -> Result<FileOutcome, PushError> {
        let known = if self.store.is_choosy() { None } else { self.reuse(file)? };
        let outcome = match known {
            Some(record) => {
                Progress::add(&self.progress.bytes, file.stamp.size);
                FileOutcome::Reused(record)
            }
            None => self.read(file, path, source)?,
        };
        if let Some(record) = outcome.stored() {
            Progress::add(&self.store.counts.chunks, record.chunks);
        }
        Ok(outcome)
    }

    /// What is remembered of the file, if it has not changed since and its chunks are still there.
    fn reuse(&self, file: &ScanFile) -> Result<Option<StatRecord>, PushError> {
        let Some(record) = self.index.stat(file.device, file.inode)? else { return Ok(None) };
        let generation = self.repository.state().index_generation;
        if record.stamp != file.stamp || record.generation != generation {
            return Ok(None);
        }
        let is_there = match &record.content {
            None => false,
            Some(Content::Inline(_)) => true,
            Some(Content::Chunks(chunks)) => self.all_known(chunks.iter().map(|chunk| chunk.id))?,
            Some(Content::Lists(_, lists)) => self.all_known(lists.iter().map(|list| list.id))?,
        };
        Ok(is_there.then_some(record))
    }

    fn all_known(&self, mut ids: impl Iterator<Item = ChunkId>) -> Result<bool, PushError> {
        ids.try_fold(true, |all, id| Ok(all && self.index.contains(id)?))
    }

    fn read(&mut self, file: &ScanFile, path: &Path, source: &Path) -> Result<FileOutcome, PushError> {
        let failed = |error: std::io::Error| PushError::Source { path: source.to_owned(), source: error };
        // A pipe or device that took the file's place must not be waited for.
        let follow = if file.is_given { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | follow;
        let mut opened = match rustix::fs::open(source, flags, Mode::empty()) {
            Ok(descriptor) => File::from(descriptor),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => {
                return Ok(FileOutcome::Vanished);
            }
            Err(error) => return Err(failed(error.into())),
        };
        let before = rustix::fs::fstat(&opened).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Ok(FileOutcome::Vanished);
        }
        let before = stamp(&before);
        let read_at = self.repository.around.clock.now();
        let mut reading = Reading::default();
        self.bases.begin(path.as_os_str().as_encoded_bytes());
        loop {
            let len = fill(&mut opened, &mut self.block).map_err(failed)?;
            let at_end = len < self.block.len();
            let block = std::mem::take(&mut self.block);
            let taken = self.take(&block[..len], at_end, &mut reading);
            self.block = block;
            taken?;
            Progress::add(&self.progress.bytes, length(len));
            if at_end {
                break;
            }
        }
        let after = stamp(&rustix::fs::fstat(&opened).map_err(|error| failed(error.into()))?);
        let changed = before != after || after.size != reading.size;
        let record = self.record(reading, after)?;
        Ok(if changed { FileOutcome::Changed(record) } else { FileOutcome::Stored(record, read_at) })
    }

    /// Takes in a block of a file: whole aligned blocks of zeros become holes, the rest is cut.
    fn take(&mut self, block: &[u8], at_end: bool, reading: &mut Reading) -> Result<(), PushError> {
        if at_end && reading.size == 0 && block.len() <= INLINE_MAX {
            reading.size = length(block.len());
            reading.inline = Some(block.to_vec());
            return Ok(());
        }
        for part in block.chunks(ZERO_BLOCK.len()) {
            if part == ZERO_BLOCK {
                self.cut(true, false, reading)?;
                reading.add_hole();
                continue;
            }
            self.data.extend_from_slice(part);
            reading.size += length(part.len());
        }
        self.cut(at_end, at_end, reading)
    }

    /// Cuts and stores what is buffered: all of it at the end of a segment, else as far as cut points are certain.
    fn cut(&mut self, segment_ends: bool, file_ends: bool, reading: &mut Reading) -> Result<(), PushError> {
        let data = std::mem::take(&mut self.data);
        let mut rest = &data[..];
        while !rest.is_empty() && (segment_ends || rest.len() >= self.chunker.window()) {
            let (chunk, behind) = rest.split_at(self.chunker.cut(rest));
            rest = behind;
            let id = ChunkId::of(chunk);
            let is_whole_file = file_ends && behind.is_empty() && reading.chunks.is_empty() && reading.holes.is_empty();
            if is_whole_file {
                reading.digest = Some(FileDigest::from_bytes(*id.as_bytes()));
            } else {
                reading.hasher.update(chunk);
            }
            let len = u32::try_from(chunk.len()).expect("chunks are cut to a maximum far below 4 GiB");
            reading.chunks.push(ChunkRef { id, len });
            let offset = reading.content_len;
            reading.content_len += u64::from(len);
            if self.sink.put_near(id, chunk, offset, &mut self.bases)? {
                Progress::add(&self.store.counts.new_chunks, 1);
                Progress::add(&self.store.counts.new_bytes, len.into());
            }
        }
        let left = rest.len();
        let start = data.len() - left;
        self.data = data;
        self.data.copy_within(start.., 0);
        self.data.truncate(left);
        Ok(())
    }

    fn record(&mut self, reading: Reading, after: FileStamp) -> Result<StatRecord, PushError> {
        let chunks = length(reading.chunks.len());
        let (content, digest) = match reading.inline {
            Some(bytes) => {
                let digest = FileDigest::of(&bytes);
                (Content::Inline(bytes), digest)
            }
            None => {
                let digest = reading.digest.unwrap_or_else(|| reading.hasher.finalize().into());
                let mut lists = self.store.manifest_sink();
                let content = build_list(&mut lists, reading.chunks)?;
                lists.finish()?;
                (content, digest)
            }
        };
        let holes = Some(reading.holes).filter(|holes| !holes.is_empty());
        let stamp = FileStamp { size: reading.size, ..after };
        Ok(StatRecord { stamp, digest, content: Some(content), holes, chunks, generation: 0 })
    }
}

/// What has been read of a file so far.
#[derive(Default)]
struct Reading {
    size: u64,
    inline: Option<Vec<u8>>,
    chunks: Vec<ChunkRef>,
    /// Bytes of those chunks.
    content_len: u64,
    holes: Vec<Hole>,
    hasher: blake3::Hasher,
    /// Known without hashing twice if the file is one chunk.
    digest: Option<FileDigest>,
}

impl Reading {
    /// A block of zeros at the end of what has been read; joins a hole that ends there.
    fn add_hole(&mut self) {
        match self.holes.last_mut() {
            Some(hole) if hole.offset + hole.len == self.size => hole.len += HOLE_BLOCK,
            _ => self.holes.push(Hole { offset: self.size, len: HOLE_BLOCK }),
        }
        self.size += HOLE_BLOCK;
        self.hasher.update(&ZERO_BLOCK);
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(source: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match source.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

const _: () = assert!(READ_BYTES.is_multiple_of(ZERO_BLOCK.len()), "blocks of zeros are seen whole");

//! One thread of a fetch: looks at what is there, reads what is missing, writes what is verified.

mod local;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use forebay_format::{ChunkId, Content, FileDigest};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use self::local::{Local, OldFiles};
use super::place::{LastFolder, Place, partial_path, set_metadata, split};
use super::plan::PlanFile;
use super::{Counts, FetchError, FetchOptions, Missing};
use crate::chunker::FastCdc;
use crate::layout::Layout;
use crate::numbers::index;
use crate::pieces::{Piece, PieceReader};
use crate::progress::Progress;
use crate::scan::stamp;
use crate::sync::Mutex;
use crate::tree::for_each_chunk;

/// Files up to this length are written whole; longer ones grow in a partial file that a later run can go on with.
const WHOLE_BYTES: u64 = 4 << 20;
/// The same for a file that grows in place: its chunks are written as they come, so that a long list only keeps a distant
/// source busy.
const LARGE_BATCH_BYTES: u64 = 256 << 20;
const READ_BYTES: usize = 1 << 20;

/// Memory a thread uses again and again.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    plain: Vec<u8>,
    block: Vec<u8>,
}

/// One thread of a fetch.
#[derive(Debug)]
pub(super) struct Worker<'w> {
    pub(super) pieces: PieceReader<'w>,
    pub(super) place: &'w Place,
    pub(super) options: &'w FetchOptions,
    pub(super) counts: &'w Counts,
    pub(super) progress: &'w Progress,
    pub(super) chunker: FastCdc,
    /// Offline: what is not there.
    pub(super) missing: &'w Mutex<Missing>,
    pub(super) buffers: Buffers,
}

/// A file that is being written.
struct Growing<'f> {
    plan: &'f PlanFile,
    file: File,
}

impl Worker<'_> {
    /// Does a few neighbouring files.
    pub(super) fn unit(&mut self, unit: &[PlanFile]) -> Result<(), FetchError> {
        let mut last = LastFolder::default();
        let mut absent = Vec::new();
        for file in unit {
            if file.same_as.is_some() {
                self.done();
            } else if self.is_there(file, &mut last)? {
                Progress::add(&self.counts.local_bytes, file.entry.size);
                Progress::add(&self.progress.bytes, file.entry.size);
                self.done();
            } else if self.options.offline {
                self.missing.lock().add(file);
            } else if file.entry.size <= WHOLE_BYTES {
                absent.push(file);
            } else {
                self.large(file, &mut last)?;
            }
        }
        self.small(&absent, &mut last)
    }

    fn done(&self) {
        Progress::add(&self.progress.files, 1);
    }

    /// Whether the file is in the folder with its bytes; mode and time are put right.
    fn is_there(&mut self, file: &PlanFile, last: &mut LastFolder) -> Result<bool, FetchError> {
        let Ok(stat) = self.place.stat(&file.path, last) else { return Ok(false) };
        self.place.refuse_folder(&file.path, &stat)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // A file with further names elsewhere is not changed in place: the other names may not be ours.
        let shared = stat.st_nlink > 1 && file.entry.hard_link.is_none();
        let found = stamp(&stat);
        if !is_file || shared || found.size != file.entry.size {
            return Ok(false);
        }
        let record = self.pieces.chunks().index().stat(stat.st_dev, stat.st_ino)?;
        let known = record.is_some_and(|record| record.stamp == found && record.digest == file.entry.digest);
        if !known && !self.has_digest(file, last)? {
            return Ok(false);
        }
        if stat.st_mode & 0o7777 != file.mode || found.mtime != file.mtime {
            let (above, name) = split(&file.path);
            let folder = last.get(self.place, above)?;
            let io = |errno| self.place.io(&file.path, errno);
            rustix::fs::chmodat(folder, name, Mode::from_raw_mode(file.mode), AtFlags::empty()).map_err(io)?;
            rustix::fs::utimensat(folder, name, &super::place::times(file.mtime), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(io)?;
        }
        Ok(true)
    }

    /// Reads and hashes an existing file; one that cannot be read is as good as none.
    fn has_digest(&mut self, file: &PlanFile, last: &mut LastFolder) -> Result<bool, FetchError> {
        let Some(mut source) = open_existing(self.place, file, last) else { return Ok(false) };
        let block = &mut self.buffers.block;
        block.resize(READ_BYTES, 0);
        let mut hasher = blake3::Hasher::new();
        loop {
            match source.read(block) {
                Ok(0) => break,
                Ok(len) => hasher.update(&block[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(false),
            };
        }
        Ok(FileDigest::from(hasher.finalize()) == file.entry.digest)
    }

    /// Files of up to a few MiB: all their chunks are asked for together, then each file is written whole.
    fn small(&mut self, files: &[&PlanFile], last: &mut LastFolder) -> Result<(), FetchError> {
        let mut contents: Vec<Vec<u8>> = Vec::with_capacity(files.len());
        let mut pieces = Vec::new();
        for (slot, file) in files.iter().enumerate() {
            let mut content = vec![0; index(file.entry.size)];
            if let Content::Inline(bytes) = &file.entry.content {
                content.copy_from_slice(bytes);
            }
            let mut layout = Layout::of(&file.entry);
            for_each_chunk::<FetchError>(self.pieces.chunks(), &file.entry, |chunk| {
                pieces.push(Piece { id: chunk.id, len: chunk.len, slot, offset: layout.place(chunk)? });
                Ok(())
            })?;
            contents.push(content);
        }
        let place = self.place;
        let mut olds = OldFiles::of(self.chunker);
        let mut near = |base: ChunkId, plain: &mut Vec<u8>| {
            olds.read(base, plain, files.len(), &mut |slot| open_existing(place, files[slot], last))
        };
        self.pieces.read_near::<FetchError>(pieces, &mut near, |piece, plain| {
            let start = index(piece.offset);
            contents[piece.slot][start..start + plain.len()].copy_from_slice(plain);
            Ok(())
        })?;
        for (file, content) in files.iter().zip(contents) {
            let growing = self.create(file, last)?;
            for extent in Layout::of(&file.entry).extents() {
                let bytes = &content[index(extent.start)..index(extent.end)];
                write_at(self.place, file, &growing.file, bytes, extent.start)?;
            }
            Progress::add(&self.progress.bytes, file.entry.size);
            self.complete(growing, file.entry.size, last)?;
        }
        Ok(())
    }

    /// A file that grows in a partial file: what is in it, or in an older version of the file, is not read again.
    fn large(&mut self, file: &PlanFile, last: &mut LastFolder) -> Result<(), FetchError> {
        let growing = self.create(file, last)?;
        let old = open_existing(self.place, file, last);
        let mut local = Local::of(old, self.chunker);
        let mut batch: Vec<Piece> = Vec::new();
        let mut batch_bytes = 0;
        let mut layout = Layout::of(&file.entry);
        let mut written = 0;
        for_each_chunk::<FetchError>(self.pieces.chunks(), &file.entry, |chunk| {
            let piece = Piece { id: chunk.id, len: chunk.len, slot: 0, offset: layout.place(chunk)? };
            if self.has_piece(&growing.file, &piece) {
                Progress::add(&self.counts.local_bytes, piece.len.into());
                Progress::add(&self.progress.bytes, piece.len.into());
                return Ok(());
            }
            written += u64::from(piece.len);
            if local.read(piece.id, &mut self.buffers.plain) && self.buffers.plain.len() == index(piece.len.into()) {
                Progress::add(&self.counts.local_bytes, piece.len.into());
                Progress::add(&self.progress.bytes, piece.len.into());
                return write_at(self.place, file, &growing.file, &self.buffers.plain, piece.offset);
            }
            batch_bytes += u64::from(piece.len);
            batch.push(piece);
            if batch_bytes >= LARGE_BATCH_BYTES {
                batch_bytes = 0;
                self.write_batch(file, &growing.file, std::mem::take(&mut batch), &mut local)?;
            }
            Ok(())
        })?;
        self.write_batch(file, &growing.file, batch, &mut local)?;
        Progress::add(&self.progress.bytes, file.entry.holes().iter().map(|hole| hole.len).sum());
        self.complete(growing, written, last)
    }

    fn write_batch(
        &mut self,
        file: &PlanFile,
        into: &File,
        batch: Vec<Piece>,
        local: &mut Local,
    ) -> Result<(), FetchError> {
        let (place, progress) = (self.place, self.progress);
        self.pieces.read_near(batch, &mut |base, plain| local.read(base, plain), |piece, plain| {
            write_at(place, file, into, plain, piece.offset)?;
            Progress::add(&progress.bytes, piece.len.into());
            Ok(())
        })
    }

    /// Whether an earlier run has written this piece. Where the file is a hole nothing was, and nothing is read.
    fn has_piece(&mut self, from: &File, piece: &Piece) -> bool {
        let end = piece.offset + u64::from(piece.len);
        match rustix::fs::seek(from, SeekFrom::Data(piece.offset)) {
            Ok(data) if data >= end => return false,
            Err(Errno::NXIO) => return false,
            // A file system without holes says so by an error, or that all is data.
            Ok(_) | Err(_) => {}
        }
        let plain = &mut self.buffers.plain;
        plain.resize(index(piece.len.into()), 0);
        from.read_exact_at(plain, piece.offset).is_ok() && ChunkId::of(plain) == piece.id
    }

    /// Opens the partial file, with its final length: what is not written yet is a hole.
    fn create<'f>(&self, file: &'f PlanFile, last: &mut LastFolder) -> Result<Growing<'f>, FetchError> {
        let partial = partial_path(file);
        let (above, name) = split(&partial);
        let folder = last.get(self.place, above)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let io = |errno: Errno| self.place.io(&file.path, errno);
        let open = || rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o600));
        let descriptor = match open() {
            Ok(descriptor) => descriptor,
            // Something else of that name, or a finished file that was not renamed: start again.
            Err(Errno::LOOP | Errno::ACCESS | Errno::NXIO | Errno::ISDIR) => {
                rustix::fs::unlinkat(folder, name, AtFlags::empty()).map_err(io)?;
                open().map_err(io)?
            }
            Err(errno) => return Err(io(errno).into()),
        };
        let growing = File::from(descriptor);
        growing
            .set_len(file.entry.size)
            .map_err(|source| self.place.write_error(&file.path, file.entry.size, source))?;
        Ok(Growing { plan: file, file: growing })
    }

    /// Gives a whole file its mode, time and final name.
    fn complete(&self, growing: Growing<'_>, written: u64, last: &mut LastFolder) -> Result<(), FetchError> {
        let file = growing.plan;
        let io = |errno| self.place.io(&file.path, errno);
        set_metadata(&growing.file, file.mode, file.mtime).map_err(io)?;
        let (above, name) = split(&file.path);
        let partial = partial_path(file);
        let folder = last.get(self.place, above)?;
        match rustix::fs::renameat(folder, split(&partial).1, folder, name) {
            Ok(()) => {}
            // Another fetch of the same version has renamed the same bytes already (where locks do nothing).
            Err(Errno::NOENT) if rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {}
            Err(errno) => return Err(io(errno).into()),
        }
        Progress::add(&self.counts.files_written, 1);
        Progress::add(&self.counts.bytes_written, written);
        self.done();
        Ok(())
    }
}

/// Opens what is under the final name, if it is a regular file that can be read.
fn open_existing(place: &Place, file: &PlanFile, last: &mut LastFolder) -> Option<File> {
    let (above, name) = split(&file.path);
    let folder = last.get(place, above).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&descriptor).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| File::from(descriptor))
}

fn write_at(place: &Place, file: &PlanFile, into: &File, bytes: &[u8], offset: u64) -> Result<(), FetchError> {
    into.write_all_at(bytes, offset).map_err(|source| place.write_error(&file.path, file.entry.size, source).into())
}

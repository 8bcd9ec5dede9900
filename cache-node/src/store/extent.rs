//! One file of frames.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_cas::numbers::length;
use forebay_format::{ChunkId, FRAME_HEADER_LEN, FrameHeader};
use forebay_policy::Class;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags};

use super::places::Place;
use super::{BLOCK, StoreError};

const SUFFIX: &str = ".extent";

/// One extent: frames one behind the other, evicted ones punched out.
#[derive(Debug)]
pub(super) struct Extent {
    path: PathBuf,
    number: u32,
    class: Class,
    file: File,
    len: AtomicU64,
    /// Holes punched so far: who read while this changed may have read a hole.
    punched: AtomicU64,
}

impl Extent {
    pub(super) fn create(folder: &Path, number: u32, class: Class) -> io::Result<Self> {
        let path = folder.join(format!("{number:010}-{class}{SUFFIX}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { path, number, class, file, len: AtomicU64::new(0), punched: AtomicU64::new(0) })
    }

    /// Bytes from its start to the end of its last frame, in whole blocks.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Appends a frame; returns its offset. One caller at a time.
    pub(super) fn append(&self, header: &FrameHeader, payload: &[u8]) -> io::Result<u64> {
        let offset = self.len();
        let end = offset + header.frame_len().next_multiple_of(BLOCK);
        let written = self
            .file
            .write_all_at(payload, offset + FRAME_HEADER_LEN as u64)
            .and_then(|()| self.file.write_all_at(&header.encode(), offset))
            .and_then(|()| self.file.set_len(end));
        if let Err(error) = written {
            // What was written of it must not take space.
            let _full_disk = self.file.set_len(offset);
            return Err(error);
        }
        self.len.store(end, Ordering::Relaxed);
        Ok(offset)
    }

    pub(super) fn punched(&self) -> u64 {
        self.punched.load(Ordering::Acquire)
    }

    /// So many bytes, into memory that is not cleared first; `None` if they cannot be read.
    pub(super) fn read(&self, mut offset: u64, len: usize) -> Option<Bytes> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            match rustix::io::pread(&self.file, spare_capacity(&mut bytes), offset) {
                Ok(0) => return None,
                Ok(read) => offset += length(read),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        // There can have been room for more.
        bytes.truncate(len);
        Some(bytes.into())
    }

    /// The same if all of them are in the page cache: this never waits for a disk.
    pub(super) fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let mut bytes = vec![0; len];
        let mut room = [IoSliceMut::new(&mut bytes)];
        let read = rustix::io::preadv2(&self.file, &mut room, offset, ReadWriteFlags::NOWAIT);
        (read == Ok(len)).then(|| bytes.into())
    }

    pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.punched.fetch_add(1, Ordering::AcqRel);
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    pub(super) fn truncate(&self, len: u64) -> io::Result<()> {
        self.len.store(len, Ordering::Relaxed);
        self.file.set_len(len)
    }

    /// Removes the file; readers that have it open read on.
    pub(super) fn delete(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "an empty extent cannot be deleted");
        }
    }

    /// Finds all frames without the places: looks for a header at every block that has data.
    pub(super) fn walk(&self) -> Vec<(ChunkId, Place)> {
        let mut found = Vec::new();
        let mut offset = 0;
        let mut bytes = [0; FRAME_HEADER_LEN];
        while offset < self.len() {
            match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
                Ok(data) => offset = data - data % BLOCK,
                Err(_no_more_data) => break,
            }
            let header =
                self.file.read_exact_at(&mut bytes, offset).ok().and_then(|()| FrameHeader::decode(&bytes).ok());
            let Some(header) = header else {
                offset += BLOCK;
                continue;
            };
            let sequence = (u64::from(self.number) << 32) | (offset / BLOCK);
            let place =
                Place { extent: self.number, offset, stored_len: header.stored_len, class: self.class, sequence };
            offset = place.end();
            found.push((header.id, place));
        }
        found
    }
}

/// Opens all extents of a folder. Files of other names are left alone.
pub(super) fn open_all(folder: &Path) -> Result<BTreeMap<u32, Arc<Extent>>, StoreError> {
    let io = |source| StoreError::Io { path: folder.to_owned(), source };
    let mut extents = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX));
        let Some((number, class)) = name.and_then(|name| name.split_once('-')) else { continue };
        let (Ok(number), Ok(class)) = (number.parse::<u32>(), class.parse::<Class>()) else { continue };
        let open = |source| StoreError::Io { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(open)?;
        let len = file.metadata().map_err(open)?.len() / BLOCK * BLOCK;
        extents.insert(
            number,
            Arc::new(Extent { path, number, class, file, len: AtomicU64::new(len), punched: AtomicU64::new(0) }),
        );
    }
    Ok(extents)
}

/// Whether space in the middle of a file can be given back here.
pub(super) fn probe_holes(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join("probe");
    let io = |source| StoreError::Io { path: path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(io)?;
    file.write_all_at(&[1; 8192], 0).map_err(io)?;
    let punched = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BLOCK);
    std::fs::remove_file(&path).map_err(io)?;
    punched.map_err(|_errno| StoreError::NoHoles { folder: folder.to_owned() })
}

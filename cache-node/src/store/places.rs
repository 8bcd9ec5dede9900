//! Where each frame lies, in RocksDB: only for a quick start, the extents know it too.

use std::io;
use std::path::Path;

use bytes::{Buf, BufMut};
use forebay_format::{ChunkId, FRAME_HEADER_LEN};
use forebay_policy::Class;
use rocksdb::{DB, IteratorMode, Options, WriteBatch};

use super::{BLOCK, StoreError};

/// Bytes of a value: extent, offset, stored length, class, sequence.
const VALUE_LEN: usize = 4 + 8 + 4 + 1 + 8;
/// Small, so that the index stays small beside the capacity.
const WRITE_BUFFER_BYTES: usize = 2 << 20;
const OPEN_FILES: i32 = 32;
/// Places written at once at a start.
const BATCH: usize = 4096;

/// Where a frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) extent: u32,
    /// Of its header, in bytes.
    pub(super) offset: u64,
    pub(super) stored_len: u32,
    pub(super) class: Class,
    /// Order of arrival.
    pub(super) sequence: u64,
}

impl Place {
    /// Bytes it takes, in whole blocks.
    pub(super) const fn len(&self) -> u64 {
        self.frame_len().next_multiple_of(BLOCK)
    }

    /// Bytes of the frame itself.
    pub(super) const fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + self.stored_len as u64
    }

    pub(super) const fn end(&self) -> u64 {
        self.offset + self.len()
    }

    fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(VALUE_LEN);
        value.put_u32_le(self.extent);
        value.put_u64_le(self.offset);
        value.put_u32_le(self.stored_len);
        value.put_u8(Class::ALL.iter().position(|class| *class == self.class).map_or(0, |at| at.to_le_bytes()[0]));
        value.put_u64_le(self.sequence);
        value
    }

    fn decode(mut value: &[u8]) -> Option<Self> {
        if value.len() != VALUE_LEN {
            return None;
        }
        Some(Self {
            extent: value.get_u32_le(),
            offset: value.get_u64_le(),
            stored_len: value.get_u32_le(),
            class: *Class::ALL.get(usize::from(value.get_u8()))?,
            sequence: value.get_u64_le(),
        })
    }
}

/// Frames that are there, by what an index or a walk says.
pub(super) type Found = Vec<(ChunkId, Place)>;

/// The open index.
#[derive(Debug)]
pub(super) struct Places {
    db: DB,
}

impl Places {
    /// Opens the index and reads all of it; a damaged one is made anew, and is empty.
    pub(super) fn open(folder: &Path, cache: &Path) -> Result<(Self, Found), StoreError> {
        if let Some(found) = Self::try_open(folder, cache)? {
            return Ok(found);
        }
        tracing::warn!(folder = %folder.display(), "the places of the cache are damaged, and are found again by walking it");
        let io = |source| StoreError::Io { path: folder.to_owned(), source };
        std::fs::remove_dir_all(folder).map_err(io)?;
        let broken = || io(io::Error::other("RocksDB cannot be opened, and not be made anew"));
        Self::try_open(folder, cache)?.ok_or_else(broken)
    }

    fn try_open(folder: &Path, cache: &Path) -> Result<Option<(Self, Found)>, StoreError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_total_wal_size(WRITE_BUFFER_BYTES as u64);
        options.set_max_open_files(OPEN_FILES);
        options.set_keep_log_file_num(1);
        let db = match DB::open(&options, folder) {
            Ok(db) => db,
            Err(error) if error.to_string().contains("lock") => {
                return Err(StoreError::InUse { folder: cache.to_owned() });
            }
            Err(_damaged) => return Ok(None),
        };
        let mut found = Vec::new();
        for item in db.iterator(IteratorMode::Start) {
            let Ok((key, value)) = item else { return Ok(None) };
            let (Ok(id), Some(place)) = (<[u8; 32]>::try_from(&*key), Place::decode(&value)) else { return Ok(None) };
            found.push((ChunkId::from_bytes(id), place));
        }
        Ok(Some((Self { db }, found)))
    }

    pub(super) fn put(&self, id: ChunkId, place: &Place) -> io::Result<()> {
        self.db.put(id.as_bytes(), place.encode()).map_err(io::Error::other)
    }

    /// A place that cannot be deleted is found wrong when it is read.
    pub(super) fn delete(&self, ids: impl Iterator<Item = ChunkId>) {
        let mut batch = WriteBatch::default();
        ids.for_each(|id| batch.delete(id.as_bytes()));
        if let Err(error) = self.db.write(batch) {
            tracing::warn!(%error, "places of evicted frames are not deleted");
        }
    }

    /// Makes the index hold exactly these.
    pub(super) fn replace<'p>(&self, all: impl Iterator<Item = (&'p ChunkId, &'p Place)>) -> io::Result<()> {
        let mut wanted = all.peekable();
        let mut batch = WriteBatch::default();
        for item in self.db.iterator(IteratorMode::Start) {
            let (key, value) = item.map_err(io::Error::other)?;
            while let Some((id, place)) = wanted.next_if(|(id, _)| id.as_bytes()[..] < *key) {
                batch.put(id.as_bytes(), place.encode());
            }
            match wanted.next_if(|(id, _)| id.as_bytes()[..] == *key) {
                Some((_, place)) if place.encode() == *value => {}
                Some((id, place)) => batch.put(id.as_bytes(), place.encode()),
                None => batch.delete(key),
            }
            self.write_full(&mut batch)?;
        }
        for (id, place) in wanted {
            batch.put(id.as_bytes(), place.encode());
            self.write_full(&mut batch)?;
        }
        self.db.write(batch).map_err(io::Error::other)
    }

    fn write_full(&self, batch: &mut WriteBatch) -> io::Result<()> {
        if batch.len() < BATCH {
            return Ok(());
        }
        self.db.write(std::mem::take(batch)).map_err(io::Error::other)
    }
}

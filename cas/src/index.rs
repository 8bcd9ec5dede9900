//! The local index: where each chunk lies. A cache of segments and footers in RocksDB; losing it costs time only.

mod location;
mod stat;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use forebay_format::{ChunkId, LogState, PackId, RepositoryId, Row, Segment, SegmentId, SegmentRef};
use rocksdb::{BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, Options, WriteBatch};

pub use self::location::Location;
pub use self::stat::{FileStamp, StatRecord};
use crate::class::{Classify, ErrorClass};
use crate::sync::RwLock;

/// Version of what is written into RocksDB; another version is thrown away.
const SCHEMA: &str = "v0";
const ROWS: &str = "rows";
const PACKS: &str = "packs";
const SEGMENTS: &str = "segments";
const PENDING: &str = "pending";
const STATS: &str = "stats";
const FAMILIES: [&str; 5] = [ROWS, PACKS, SEGMENTS, PENDING, STATS];
/// Bytes of all block caches and write buffers together: the index's share of the memory bound.
const BLOCK_CACHE_BYTES: usize = 32 << 20;
const WRITE_BUFFER_BYTES: usize = 8 << 20;
/// Open table files; every command must work with 256 descriptors in all.
const OPEN_FILES: i32 = 64;
/// Rows written in one batch while a segment is loaded.
const BATCH_ROWS: usize = 16 << 10;

/// The index could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// RocksDB found damage, or a value has no sense. The folder can be deleted: [`LocalIndex::wipe`].
    #[error("the index cache {} is damaged", folder.display())]
    Damaged {
        /// Its folder.
        folder: PathBuf,
        /// What was found.
        detail: String,
    },
    /// RocksDB could not work, for instance on a full disk.
    #[error("the index cache {} cannot be used: {detail}", folder.display())]
    Failed {
        /// Its folder.
        folder: PathBuf,
        /// What RocksDB says.
        detail: String,
        /// Whether the disk is full.
        full: bool,
    },
}

impl Classify for IndexError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Failed { full: true, .. } => ErrorClass::Space,
            Self::Damaged { .. } | Self::Failed { .. } => ErrorClass::Failed,
        }
    }

    fn damaged_index(&self) -> Option<&Path> {
        match self {
            Self::Damaged { folder, .. } => Some(folder),
            Self::Failed { .. } => None,
        }
    }
}

/// How the index was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// This process writes it.
    Writer,
    /// Another process writes it; what this one adds stays in memory.
    Reader,
    /// Its folder cannot be used; everything stays in memory.
    Memory,
}

/// A pack that is durable in the origin and not yet listed by a committed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPack {
    /// The pack.
    pub id: PackId,
    /// Its length in bytes.
    pub len: u64,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// What this process knows beyond RocksDB.
#[derive(Debug, Default)]
struct Overlay {
    rows: BTreeMap<ChunkId, Vec<Location>>,
    packs: BTreeMap<PackId, u64>,
    segments: BTreeMap<[u8; 16], ()>,
    /// Packs that another process's RocksDB may still list and that do not count any more.
    hidden: BTreeSet<PackId>,
    /// Nothing in another process's RocksDB counts any more.
    ignores_db: bool,
}

/// The index of one repository under the cache folder.
pub struct LocalIndex {
    folder: PathBuf,
    db: Option<DB>,
    mode: OpenMode,
    overlay: RwLock<Overlay>,
    /// Why the folder was emptied when it was opened.
    wiped: Option<String>,
}

impl fmt::Debug for LocalIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalIndex").field("folder", &self.folder).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl LocalIndex {
    /// Folder of a repository's index below the cache folder.
    #[must_use]
    pub fn folder_of(cache: &Path, repository: RepositoryId) -> PathBuf {
        cache.join(repository.to_hex()).join(format!("index-{SCHEMA}"))
    }

    /// Opens the index, whatever state it is in: damaged, it is emptied (see [`Self::wiped`]); held by another process,
    /// it is read beside it; unusable, everything stays in memory.
    #[must_use]
    pub fn open(folder: &Path) -> Self {
        let mut index = Self::in_memory(folder);
        if std::fs::create_dir_all(folder).is_err() {
            return index;
        }
        let (db, mode) = match open_writer(folder) {
            Ok(db) => (Some(db), OpenMode::Writer),
            Err(error) if is_locked(&error) => (open_reader(folder).ok(), OpenMode::Reader),
            Err(error) => {
                tracing::debug!(%error, "the index cache does not open");
                index.wiped = Some(error.to_string());
                let db = Self::wipe(folder).ok().and_then(|()| open_writer(folder).ok());
                (db, OpenMode::Writer)
            }
        };
        index.mode = if db.is_some() { mode } else { OpenMode::Memory };
        index.db = db;
        index
    }

    /// Gives up writing, so that other processes can: for one that only reads, and for long. What is in the index stays
    /// readable.
    #[must_use]
    pub fn beside(self) -> Self {
        if self.mode != OpenMode::Writer {
            return self;
        }
        let (folder, wiped) = (self.folder.clone(), self.wiped.clone());
        drop(self);
        match open_reader(&folder) {
            Ok(db) => Self { db: Some(db), mode: OpenMode::Reader, wiped, ..Self::in_memory(&folder) },
            Err(error) => {
                tracing::debug!(%error, "the index cache cannot be read beside others");
                Self::open(&folder)
            }
        }
    }

    /// An index that keeps everything in memory.
    #[must_use]
    pub fn in_memory(folder: &Path) -> Self {
        let overlay = RwLock::default();
        Self { folder: folder.to_owned(), db: None, mode: OpenMode::Memory, overlay, wiped: None }
    }

    /// Deletes the index. The next command fills it again from the repository.
    ///
    /// # Errors
    /// What the file system says.
    pub fn wipe(folder: &Path) -> std::io::Result<()> {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::create_dir_all(folder)
    }

    /// How it was opened.
    #[must_use]
    pub const fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Why it was emptied when it was opened, if it was.
    #[must_use]
    pub fn wiped(&self) -> Option<&str> {
        self.wiped.as_deref()
    }

    /// All places of a chunk that are known, those with the shortest chain of bases first; empty if there is none.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] if RocksDB or a value is damaged.
    pub fn locate(&self, id: ChunkId) -> Result<Vec<Location>, IndexError> {
        let mut places = match self.get(ROWS, id.as_bytes())? {
            None => Vec::new(),
            Some(value) => Location::decode_list(id, &value).ok_or_else(|| self.damaged("a row"))?,
        };
        if self.mode != OpenMode::Writer
            && let Some(more) = self.overlay.read().rows.get(&id)
        {
            places.extend_from_slice(more);
        }
        if self.mode == OpenMode::Reader {
            let overlay = self.overlay.read();
            places.retain(|place| !overlay.hidden.contains(&place.pack));
        }
        places.sort_by_key(|place| place.row.header.depth);
        Ok(places)
    }

    /// Whether any place of a chunk is known.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn contains(&self, id: ChunkId) -> Result<bool, IndexError> {
        match self.mode {
            OpenMode::Writer => Ok(self.get(ROWS, id.as_bytes())?.is_some()),
            OpenMode::Reader | OpenMode::Memory => Ok(!self.locate(id)?.is_empty()),
        }
    }

    /// Length of a pack in bytes, if it is known.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn pack_len(&self, pack: PackId) -> Result<Option<u64>, IndexError> {
        if let Some(value) = self.get(PACKS, pack.as_bytes())? {
            let bytes = value.as_slice().try_into().ok().map(u64::from_le_bytes);
            return bytes.map(Some).ok_or_else(|| self.damaged("a pack"));
        }
        Ok(self.overlay.read().packs.get(&pack).copied())
    }

    /// Whether a segment has been loaded.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn has_segment(&self, segment: &SegmentRef) -> Result<bool, IndexError> {
        let in_memory = self.overlay.read().segments.contains_key(segment.id.as_bytes());
        Ok(in_memory || self.get(SEGMENTS, segment.id.as_bytes())?.is_some())
    }

    /// Names of all segments that RocksDB holds.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn loaded_segments(&self) -> Result<Vec<SegmentId>, IndexError> {
        self.keys(SEGMENTS)?.into_iter().map(|key| self.name(&key).map(SegmentId::from_bytes)).collect()
    }

    /// Takes in a segment whose digest the caller has checked. Atomic in its effect: a crash in the middle leaves it
    /// unmarked, and it is loaded again.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot write.
    pub fn add_segment(&self, name: &SegmentRef, segment: &Segment) -> Result<(), IndexError> {
        for rows in segment.rows.chunks(BATCH_ROWS) {
            let places =
                rows.iter().map(|(row, number)| Location { pack: segment.packs[*number as usize].id, row: *row });
            self.add_places(places)?;
        }
        self.write(|db, batch| {
            for pack in &segment.packs {
                batch.put_cf(family(db, PACKS), pack.id.as_bytes(), pack.len.to_le_bytes());
                // It is committed now, whoever wrote it.
                batch.delete_cf(family(db, PENDING), pack.id.as_bytes());
            }
            batch.put_cf(family(db, SEGMENTS), name.id.as_bytes(), []);
        })?;
        if self.mode != OpenMode::Writer {
            let mut overlay = self.overlay.write();
            overlay.packs.extend(segment.packs.iter().map(|pack| (pack.id, pack.len)));
            overlay.segments.insert(*name.id.as_bytes(), ());
        }
        Ok(())
    }

    /// These segments are committed; all their packs have been added as pending by this process.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot write.
    pub fn commit_segments(&self, segments: &[SegmentRef], packs: &[PackId]) -> Result<(), IndexError> {
        if self.mode != OpenMode::Writer {
            self.overlay.write().segments.extend(segments.iter().map(|name| (*name.id.as_bytes(), ())));
        }
        self.write(|db, batch| {
            for pack in packs {
                batch.delete_cf(family(db, PENDING), pack.as_bytes());
            }
            for name in segments {
                batch.put_cf(family(db, SEGMENTS), name.id.as_bytes(), []);
            }
        })
    }

    /// Remembers a durable pack that no commit lists yet, so that an interrupted push need not send it again.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot write.
    pub fn add_pending(&self, pack: &PendingPack) -> Result<(), IndexError> {
        self.add_places(pack.rows.iter().map(|row| Location { pack: pack.id, row: *row }))?;
        self.write(|db, batch| {
            batch.put_cf(family(db, PACKS), pack.id.as_bytes(), pack.len.to_le_bytes());
            batch.put_cf(family(db, PENDING), pack.id.as_bytes(), location::encode_pending(pack));
        })?;
        if self.mode != OpenMode::Writer {
            self.overlay.write().packs.insert(pack.id, pack.len);
        }
        Ok(())
    }

    /// Names of the packs that an interrupted push left behind.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn pending_ids(&self) -> Result<Vec<PackId>, IndexError> {
        self.keys(PENDING)?.into_iter().map(|key| self.name(&key).map(PackId::from_bytes)).collect()
    }

    /// One pack that an interrupted push left behind.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn pending(&self, id: PackId) -> Result<Option<PendingPack>, IndexError> {
        self.get(PENDING, id.as_bytes())?
            .map(|value| location::decode_pending(id, &value).ok_or_else(|| self.damaged("a pending pack")))
            .transpose()
    }

    /// Forgets a pending pack that is not in the origin any more, with all its places.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot write.
    pub fn forget_pending(&self, pack: &PendingPack) -> Result<(), IndexError> {
        if self.mode != OpenMode::Writer {
            return self.forget_packs(&BTreeSet::from([pack.id]));
        }
        let mut kept = Vec::new();
        for row in &pack.rows {
            let places = self.locate(row.id())?;
            kept.push((row.id(), places.into_iter().filter(|place| place.pack != pack.id).collect::<Vec<_>>()));
        }
        self.write(|db, batch| {
            for (id, places) in &kept {
                if places.is_empty() {
                    batch.delete_cf(family(db, ROWS), id.as_bytes());
                } else {
                    batch.put_cf(family(db, ROWS), id.as_bytes(), Location::encode_list(places));
                }
            }
            batch.delete_cf(family(db, PENDING), pack.id.as_bytes());
            batch.delete_cf(family(db, PACKS), pack.id.as_bytes());
        })
    }

    /// Follows a collection of garbage: segments that stopped being live, and packs that were condemned, do not count any
    /// more. `false`: segments were loaded that `state` does not know at all; everything is forgotten, to be loaded again.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot be read or written.
    pub fn follow(&self, state: &LogState) -> Result<bool, IndexError> {
        let live: BTreeSet<SegmentId> = state.segments.iter().map(|segment| segment.id).collect();
        let dropped: BTreeSet<SegmentId> =
            state.condemned.iter().flat_map(|group| &group.segments).map(|segment| segment.id).collect();
        let loaded = self.loaded_segments()?;
        let stale: Vec<SegmentId> = loaded.into_iter().filter(|segment| !live.contains(segment)).collect();
        if stale.iter().any(|segment| !dropped.contains(segment)) {
            self.forget_all()?;
            return Ok(false);
        }
        let packs: BTreeSet<PackId> = state.condemned.iter().flat_map(|group| &group.packs).copied().collect();
        self.forget_packs(&packs)?;
        self.overlay.write().segments.retain(|id, ()| live.contains(&SegmentId::from_bytes(*id)));
        self.write(|db, batch| {
            for segment in &stale {
                batch.delete_cf(family(db, SEGMENTS), segment.as_bytes());
            }
        })?;
        Ok(true)
    }

    /// Forgets every place in these packs.
    fn forget_packs(&self, packs: &BTreeSet<PackId>) -> Result<(), IndexError> {
        let mut overlay = self.overlay.write();
        overlay.rows.retain(|_, places| {
            places.retain(|place| !packs.contains(&place.pack));
            !places.is_empty()
        });
        overlay.packs.retain(|pack, _| !packs.contains(pack));
        if self.mode == OpenMode::Reader {
            overlay.hidden.extend(packs);
        }
        drop(overlay);
        let Some(db) = self.db.as_ref().filter(|_| self.mode == OpenMode::Writer) else { return Ok(()) };
        let mut batch = WriteBatch::default();
        for item in db.iterator_cf(family(db, ROWS), rocksdb::IteratorMode::Start) {
            let (key, value) = item.map_err(|error| self.rocks(&error))?;
            let id = <[u8; 32]>::try_from(&*key).map_err(|_wrong_length| self.damaged("a row"))?;
            let mut places =
                Location::decode_list(ChunkId::from_bytes(id), &value).ok_or_else(|| self.damaged("a row"))?;
            let before = places.len();
            places.retain(|place| !packs.contains(&place.pack));
            match places.len() {
                0 => batch.delete_cf(family(db, ROWS), &key),
                left if left < before => batch.put_cf(family(db, ROWS), &key, Location::encode_list(&places)),
                _ => {}
            }
            if batch.len() >= BATCH_ROWS {
                db.write(std::mem::take(&mut batch)).map_err(|error| self.rocks(&error))?;
            }
        }
        for pack in packs {
            batch.delete_cf(family(db, PACKS), pack.as_bytes());
            batch.delete_cf(family(db, PENDING), pack.as_bytes());
        }
        db.write(batch).map_err(|error| self.rocks(&error))
    }

    /// Forgets all chunks and files, but the packs that an interrupted push left behind.
    fn forget_all(&self) -> Result<(), IndexError> {
        let pending: Vec<PendingPack> =
            self.pending_ids()?.into_iter().filter_map(|id| self.pending(id).transpose()).collect::<Result<_, _>>()?;
        let ignores_db = self.mode == OpenMode::Reader;
        *self.overlay.write() = Overlay { ignores_db, ..Overlay::default() };
        self.write(|db, batch| {
            for name in [ROWS, PACKS, SEGMENTS, STATS] {
                // Keys are at most 32 bytes long.
                batch.delete_range_cf(family(db, name), &[][..], &[0xff; 33][..]);
            }
        })?;
        if self.mode == OpenMode::Writer {
            pending.iter().try_for_each(|pack| self.add_pending(pack))?;
        }
        Ok(())
    }

    /// What is remembered of a file.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn stat(&self, device: u64, inode: u64) -> Result<Option<StatRecord>, IndexError> {
        let key = stat::key(device, inode);
        // A record that makes no sense is as good as none: the file is read again.
        Ok(self.get(STATS, &key)?.and_then(|value| StatRecord::decode(&value)))
    }

    /// Remembers files. In a process that does not write the index this does nothing, and the files are read again next
    /// time.
    ///
    /// # Errors
    /// [`IndexError`] if RocksDB cannot write.
    pub fn put_stats<'r>(
        &self,
        records: impl IntoIterator<Item = (u64, u64, &'r StatRecord)>,
    ) -> Result<(), IndexError> {
        self.write(|db, batch| {
            for (device, inode, record) in records {
                batch.put_cf(family(db, STATS), stat::key(device, inode), record.encode());
            }
        })
    }

    /// Adds places to the rows of their chunks; places known already change nothing.
    fn add_places(&self, places: impl Iterator<Item = Location>) -> Result<(), IndexError> {
        let mut by_id: BTreeMap<ChunkId, Vec<Location>> = BTreeMap::new();
        for place in places {
            by_id.entry(place.row.id()).or_default().push(place);
        }
        if self.mode != OpenMode::Writer {
            let mut overlay = self.overlay.write();
            for (id, places) in by_id {
                add_new(overlay.rows.entry(id).or_default(), places);
            }
            return Ok(());
        }
        let mut rows = Vec::with_capacity(by_id.len());
        for (id, places) in by_id {
            let mut known = self.locate(id)?;
            if add_new(&mut known, places) {
                rows.push((id, Location::encode_list(&known)));
            }
        }
        self.write(|db, batch| {
            for (id, value) in rows {
                batch.put_cf(family(db, ROWS), id.as_bytes(), value);
            }
        })
    }

    fn keys(&self, name: &str) -> Result<Vec<Box<[u8]>>, IndexError> {
        let ignores_db = self.mode == OpenMode::Reader && self.overlay.read().ignores_db;
        let Some(db) = self.db.as_ref().filter(|_| !ignores_db) else { return Ok(Vec::new()) };
        db.iterator_cf(family(db, name), rocksdb::IteratorMode::Start)
            .map(|item| item.map(|(key, _)| key).map_err(|error| self.rocks(&error)))
            .collect()
    }

    /// A key as a random name.
    fn name(&self, key: &[u8]) -> Result<[u8; 16], IndexError> {
        key.try_into().map_err(|_wrong_length| self.damaged("a name"))
    }

    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        match &self.db {
            Some(_) if self.mode == OpenMode::Reader && self.overlay.read().ignores_db => Ok(None),
            None => Ok(None),
            Some(db) => db.get_cf(family(db, name), key).map_err(|error| self.rocks(&error)),
        }
    }

    /// Fills a batch and writes it, if this process is the writer.
    fn write(&self, fill: impl FnOnce(&DB, &mut WriteBatch)) -> Result<(), IndexError> {
        match &self.db {
            Some(db) if self.mode == OpenMode::Writer => {
                let mut batch = WriteBatch::default();
                fill(db, &mut batch);
                db.write(batch).map_err(|error| self.rocks(&error))
            }
            _ => Ok(()),
        }
    }

    fn damaged(&self, what: &str) -> IndexError {
        IndexError::Damaged { folder: self.folder.clone(), detail: format!("{what} cannot be decoded") }
    }

    fn rocks(&self, error: &rocksdb::Error) -> IndexError {
        let (folder, detail) = (self.folder.clone(), error.to_string());
        match error.kind() {
            rocksdb::ErrorKind::Corruption => IndexError::Damaged { folder, detail },
            // A file of the index that vanished or is too short shows as an IO error.
            rocksdb::ErrorKind::IOError if !detail.contains("No space") => IndexError::Damaged { folder, detail },
            _ => {
                let full = detail.contains("No space");
                IndexError::Failed { folder, detail, full }
            }
        }
    }
}

/// Adds those places that are not there yet; says whether any was added.
fn add_new(known: &mut Vec<Location>, places: Vec<Location>) -> bool {
    let before = known.len();
    for place in places {
        if !known.contains(&place) {
            known.push(place);
        }
    }
    known.len() > before
}

fn family<'d>(db: &'d DB, name: &str) -> &'d ColumnFamily {
    db.cf_handle(name).expect("every family is opened or made when the index is opened")
}

fn is_locked(error: &rocksdb::Error) -> bool {
    let text = error.to_string();
    text.contains("lock ") || text.contains("LOCK")
}

fn families() -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
    FAMILIES
        .iter()
        .map(|name| {
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&cache);
            table.set_bloom_filter(10.0, false);
            let mut options = Options::default();
            options.set_block_based_table_factory(&table);
            options.set_write_buffer_size(WRITE_BUFFER_BYTES);
            ColumnFamilyDescriptor::new(*name, options)
        })
        .chain([ColumnFamilyDescriptor::new("default", Options::default())])
        .collect()
}

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_open_files(OPEN_FILES);
    options.set_keep_log_file_num(2);
    options.set_max_total_wal_size(64 << 20);
    options
}

fn open_writer(folder: &Path) -> Result<DB, rocksdb::Error> {
    DB::open_cf_descriptors(&options(), folder, families())
}

/// Opens beside the writing process. RocksDB keeps a reader's own log in a folder of its own.
fn open_reader(folder: &Path) -> Result<DB, rocksdb::Error> {
    let own = folder.with_extension("readers").join(std::process::id().to_string());
    // RocksDB makes the last folder only; without it, it says so better than this would.
    let _it_will_tell = std::fs::create_dir_all(&own);
    let mut options = options();
    // A reader has to keep all files open: the writer may delete them.
    options.set_max_open_files(-1);
    let db = DB::open_cf_descriptors_as_secondary(&options, folder, &own, families());
    let _its_log_is_of_no_use = std::fs::remove_dir_all(&own);
    db
}

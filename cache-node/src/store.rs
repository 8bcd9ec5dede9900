//! The disk cache: frames in extents, their places in RocksDB, a hard capacity.
//!
//! ```text
//! <folder>/extents/<number>-<class>.extent   frames as received, each at a multiple of 4 KiB
//! <folder>/places/                           RocksDB: id → extent, offset, length, class, sequence
//! ```
//!
//! An evicted frame is punched out of its extent, so that the disk gets the space back at once; an extent in which nothing
//! lives any more is deleted. The places can be deleted: they are found again by walking the extents. Nothing here is
//! trusted when it is read back: whoever takes a frame verifies it, and [`Store::discard`] makes a damaged one a miss.

mod extent;
mod places;
mod span;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_cas::source::Frame;
use forebay_cas::sync::{Mutex, RwLock};
use forebay_cas::{Classify, ErrorClass};
use forebay_format::{ChunkId, FRAME_HEADER_LEN, FrameHeader, FrameKind};
use forebay_policy::{Class, EvictionConfig, EvictionCore, Victim};

use self::extent::Extent;
use self::places::{Place, Places};
pub use self::span::{Located, Span};

/// An extent is closed when it has grown to this.
const EXTENT_BYTES: u64 = 64 << 20;
/// Frames start and are punched out at multiples of this.
pub(crate) const BLOCK: u64 = 4096;

/// The cache folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system fails.
    #[error("{} cannot be used", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another node uses it.
    #[error("the cache {} is in use by another node", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// Space cannot be given back piece by piece.
    #[error(
        "the file system of {} cannot punch holes into files; put the cache on ext4, xfs, btrfs or tmpfs",
        folder.display()
    )]
    NoHoles {
        /// The folder.
        folder: PathBuf,
    },
    /// The shares of the classes contradict each other.
    #[error(transparent)]
    Shares(#[from] forebay_policy::eviction::ConfigError),
}

impl Classify for StoreError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Io { source, .. } => match source.class() {
                ErrorClass::Failed => ErrorClass::Space,
                class => class,
            },
            Self::InUse { .. } => ErrorClass::Conflict,
            Self::NoHoles { .. } | Self::Shares(_) => ErrorClass::Usage,
        }
    }
}

/// What a store holds and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes of all frames, in whole blocks.
    pub used_bytes: u64,
    /// The most there may be.
    pub capacity_bytes: u64,
    /// Frames.
    pub entries: u64,
    /// Frames evicted since the start.
    pub evictions: u64,
    /// Damaged frames thrown away since the start.
    pub discarded: u64,
    /// Frames that could not be kept since the start: no room by the rules, or a full disk.
    pub refused: u64,
}

/// A disk cache of frames. Calls block on the disk.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    inner: RwLock<Inner>,
    core: Mutex<EvictionCore<ChunkId>>,
}

#[derive(Debug)]
struct Inner {
    places: Places,
    by_id: BTreeMap<ChunkId, Place>,
    extents: BTreeMap<u32, Arc<Extent>>,
    /// Frames that live in each extent.
    live: BTreeMap<u32, u64>,
    /// The extent that grows, by class.
    open: BTreeMap<Class, u32>,
    next_extent: u32,
    next_sequence: u64,
    stats: StoreStats,
}

impl Store {
    /// Opens or makes the cache in a folder; what is there is kept, as far as the capacity allows.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used at all. Damage inside is no error.
    pub fn open(folder: &Path, config: &EvictionConfig) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io { path: folder.to_owned(), source };
        let extents_folder = folder.join("extents");
        std::fs::create_dir_all(&extents_folder).map_err(io)?;
        extent::probe_holes(folder)?;
        let extents = extent::open_all(&extents_folder)?;
        let (places, mut found) = Places::open(&folder.join("places"), folder)?;
        if found.is_empty() {
            found = extents.values().flat_map(|extent| extent.walk()).collect();
        }
        found.retain(|(_, place)| extents.get(&place.extent).is_some_and(|extent| place.end() <= extent.len()));
        found.sort_unstable_by_key(|(_, place)| place.sequence);
        let next_extent = extents.keys().next_back().map_or(0, |last| last + 1);
        let mut core = EvictionCore::new(config)?;
        let mut inner = Inner {
            places,
            by_id: BTreeMap::new(),
            extents,
            live: BTreeMap::new(),
            open: BTreeMap::new(),
            next_extent,
            next_sequence: found.last().map_or(0, |(_, place)| place.sequence + 1),
            stats: StoreStats { capacity_bytes: config.capacity_bytes, ..StoreStats::default() },
        };
        for (id, place) in found {
            match core.admit(id, place.class, place.len()) {
                Ok(victims) => {
                    for victim in victims {
                        inner.by_id.remove(&victim.id);
                    }
                    inner.by_id.insert(id, place);
                }
                Err(_twice_or_no_room) => {}
            }
        }
        inner.reconcile().map_err(io)?;
        Ok(Self { folder: folder.to_owned(), inner: RwLock::new(inner), core: Mutex::new(core) })
    }

    /// A frame that is here, as it was put. `None` if it is not, or cannot be read.
    #[must_use]
    pub fn get(&self, id: ChunkId, kind: FrameKind) -> Option<Frame> {
        let located = self.locate(&[id]);
        located.spans.first().and_then(|span| self.read(span, kind).pop())
    }

    /// Where chunks lie.
    #[must_use]
    pub fn locate(&self, ids: &[ChunkId]) -> Located {
        self.inner.read().locate(ids)
    }

    /// The same; `None` if it would have to wait for somebody who writes.
    #[must_use]
    pub fn locate_now(&self, ids: &[ChunkId]) -> Option<Located> {
        Some(self.inner.try_read()?.locate(ids))
    }

    /// Reads the frames of a span. What is not there any more is left out; so is what is damaged, and it is thrown away.
    #[must_use]
    pub fn read(&self, span: &Span, kind: FrameKind) -> Vec<Frame> {
        let bytes = span.extent.read(span.start(), span.len()).unwrap_or_default();
        let mut frames = Vec::with_capacity(span.places.len());
        let mut damaged = Vec::new();
        if bytes.is_empty() {
            damaged.extend(span.ids());
        } else {
            let inner = self.inner.read();
            for (id, place, frame) in span.frames(&bytes) {
                // One that was evicted meanwhile may have been punched out while it was read.
                if inner.by_id.get(&id) != Some(place) {
                    continue;
                }
                match frame {
                    Some(frame) => frames.push(frame),
                    None => damaged.push(id),
                }
            }
        }
        damaged.into_iter().for_each(|id| self.discard(id));
        self.touched(frames, kind)
    }

    /// What the patches in a span are made of, by their headers alone.
    #[must_use]
    pub fn bases(&self, span: &Span) -> Vec<ChunkId> {
        let header = |place: &Place| FrameHeader::decode(&span.extent.read(place.offset, FRAME_HEADER_LEN)?).ok();
        span.places.iter().filter_map(|(id, place)| header(place).filter(|header| header.id == *id)?.base).collect()
    }

    /// The same without waiting for a disk or a lock; `None` if it would have to, or anything is odd: [`Self::read`] knows.
    #[must_use]
    pub fn read_now(&self, span: &Span, kind: FrameKind) -> Option<Vec<Frame>> {
        let bytes = span.extent.read_cached(span.start(), span.len())?;
        let frames = span.frames(&bytes).map(|(_, _, frame)| frame).collect::<Option<Vec<_>>>()?;
        (span.extent.punched() == span.punched).then(|| self.touched(frames, kind))
    }

    fn touched(&self, mut frames: Vec<Frame>, kind: FrameKind) -> Vec<Frame> {
        frames.retain(|frame| frame.header.kind == kind);
        let mut core = self.core.lock();
        for frame in &frames {
            core.touch(frame.header.id);
        }
        drop(core);
        frames
    }

    /// Whether a frame is here.
    #[must_use]
    pub fn contains(&self, id: ChunkId) -> bool {
        self.inner.read().by_id.contains_key(&id)
    }

    /// Splits ids into those that are not here, and the stored bytes of those that are.
    #[must_use]
    pub fn split(&self, ids: Vec<ChunkId>) -> (Vec<ChunkId>, u64) {
        let inner = self.inner.read();
        let mut here_bytes = 0;
        let missing = ids.into_iter().filter(|id| match inner.by_id.get(id) {
            Some(place) => {
                here_bytes += place.frame_len();
                false
            }
            None => true,
        });
        (missing.collect(), here_bytes)
    }

    /// Keeps a verified frame, and evicts what has to go for it. `false`: it is not kept, which breaks nothing.
    pub fn put(&self, header: &FrameHeader, payload: &[u8], class: Class) -> bool {
        let len = header.frame_len().next_multiple_of(BLOCK);
        let mut inner = self.inner.write();
        let victims = match self.core.lock().admit(header.id, class, len) {
            Ok(victims) => victims,
            Err(forebay_policy::AdmitError::Present) => return true,
            Err(_no_room) => {
                inner.stats.refused += 1;
                return false;
            }
        };
        inner.evict(&victims);
        let kept = inner.append(&self.folder, header, payload, class);
        if let Err(error) = kept {
            tracing::warn!(%error, folder = %self.folder.display(), "a frame cannot be kept");
            inner.stats.refused += 1;
            self.core.lock().remove(header.id);
            return false;
        }
        true
    }

    /// Throws a damaged frame away.
    pub fn discard(&self, id: ChunkId) {
        let mut inner = self.inner.write();
        let Some(victim) = self.core.lock().remove(id) else { return };
        inner.evict(&[victim]);
        inner.stats.evictions -= 1;
        inner.stats.discarded += 1;
    }

    /// What it holds and did.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let inner = self.inner.read();
        let used_bytes = self.core.lock().used_bytes();
        StoreStats { used_bytes, entries: inner.by_id.len() as u64, ..inner.stats }
    }
}

impl Inner {
    fn locate(&self, ids: &[ChunkId]) -> Located {
        let mut located = Located::default();
        let mut places = Vec::with_capacity(ids.len());
        for id in ids {
            match self.by_id.get(id) {
                Some(place) => places.push((*id, *place)),
                None => located.missing.push(*id),
            }
        }
        places.sort_unstable_by_key(|(_, place)| (place.extent, place.offset));
        places.dedup();
        for (id, place) in places {
            match located.spans.last_mut() {
                Some(span) if span.takes(&place) => span.places.push((id, place)),
                _ => match self.extents.get(&place.extent) {
                    Some(extent) => located.spans.push(Span {
                        extent: Arc::clone(extent),
                        punched: extent.punched(),
                        places: vec![(id, place)],
                    }),
                    None => located.missing.push(id),
                },
            }
        }
        located
    }

    fn append(
        &mut self,
        folder: &Path,
        header: &FrameHeader,
        payload: &[u8],
        class: Class,
    ) -> Result<(), std::io::Error> {
        let number = match self.open.get(&class) {
            Some(number) if self.extents.get(number).is_some_and(|extent| extent.len() < EXTENT_BYTES) => *number,
            _ => {
                let number = self.next_extent;
                let extent = Extent::create(&folder.join("extents"), number, class)?;
                self.next_extent += 1;
                self.extents.insert(number, Arc::new(extent));
                if let Some(full) = self.open.insert(class, number) {
                    self.drop_dead(full);
                }
                number
            }
        };
        let extent = Arc::clone(&self.extents[&number]);
        let offset = extent.append(header, payload)?;
        let stored_len = header.stored_len;
        let place = Place { extent: number, offset, stored_len, class, sequence: self.next_sequence };
        self.next_sequence += 1;
        self.places.put(header.id, &place)?;
        self.by_id.insert(header.id, place);
        *self.live.entry(number).or_default() += 1;
        Ok(())
    }

    /// Forgets frames, then gives their space back. In this order a crash costs space until the next start, and no more.
    fn evict(&mut self, victims: &[Victim<ChunkId>]) {
        let gone: Vec<(ChunkId, Place)> =
            victims.iter().filter_map(|victim| Some((victim.id, self.by_id.remove(&victim.id)?))).collect();
        self.places.delete(gone.iter().map(|(id, _)| *id));
        for (_, place) in &gone {
            self.stats.evictions += 1;
            if let Some(live) = self.live.get_mut(&place.extent) {
                *live -= 1;
            }
            if let Some(extent) = self.extents.get(&place.extent)
                && let Err(error) = extent.punch(place.offset, place.len())
            {
                tracing::warn!(%error, "evicted space is not given back before the next start");
            }
            self.drop_dead(place.extent);
        }
    }

    /// Deletes an extent in which nothing lives, unless it still grows.
    fn drop_dead(&mut self, number: u32) {
        let grows = self.open.values().any(|open| *open == number);
        let lives = self.live.get(&number).is_some_and(|live| *live > 0);
        if !grows
            && !lives
            && let Some(extent) = self.extents.remove(&number)
        {
            self.live.remove(&number);
            extent.delete();
        }
    }

    /// Makes disk and places agree after a start: what no place names is punched out, and the other way round.
    fn reconcile(&mut self) -> Result<(), std::io::Error> {
        let mut live: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for place in self.by_id.values() {
            live.entry(place.extent).or_default().push((place.offset, place.end()));
        }
        let dead: Vec<u32> = self.extents.keys().filter(|number| !live.contains_key(number)).copied().collect();
        for number in dead {
            if let Some(extent) = self.extents.remove(&number) {
                extent.delete();
            }
        }
        self.live = live.iter().map(|(number, ranges)| (*number, ranges.len() as u64)).collect();
        for (number, mut ranges) in live {
            ranges.sort_unstable();
            let extent = &self.extents[&number];
            let mut end = 0;
            for (from, to) in ranges {
                if from > end {
                    extent.punch(end, from - end)?;
                }
                end = end.max(to);
            }
            extent.truncate(end)?;
        }
        self.places.replace(self.by_id.iter())
    }
}

#[cfg(test)]
mod tests;

//! Files on their way through the threads of a push. One thread reads the scan and hands out batches, several store the
//! files in them, and batches come back in their order to where the manifest is built. Batches between the two ends hold a
//! bounded number of bytes, however many files there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_format::INLINE_MAX;

use super::PushError;
use super::content::{self, FileOutcome, Worker};
use super::store::Store;
use crate::cancel::Cancel;
use crate::index::LocalIndex;
use crate::numbers::index;
use crate::progress::Progress;
use crate::repository::Repository;
use crate::scan::{FileKey, HardLinks, ScanFile, ScanItem};
use crate::spool::{SpoolError, SpoolReader};
use crate::sync::{Condvar, Mutex, Receiver, Sender, bounded};
use crate::task;
use crate::tree::ENTRY_CHUNKS_MAX;

/// Items handed to a thread at once, of which the files stay neighbours in a pack.
const BATCH_ITEMS: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;
/// What all batches on their way may hold: files, and what is known of them then. A thread that is busy with one huge file
/// keeps back the batches behind it, so this is room for 100,000 files.
const ROOM_BYTES: usize = 64 << 20;
/// Rough bytes of an item beside its name and its content.
const ITEM_BYTES: usize = 400;
/// Bytes of one chunk in a list of them.
const CHUNK_BYTES: usize = 40;
/// Batches waiting between two threads; the room bounds them all.
const WAITING: usize = 64;

/// An item of the scan, and what became of it.
#[derive(Debug)]
pub(super) enum Item {
    /// Only its place in the walk matters.
    Other(ScanItem),
    /// A file.
    File {
        file: ScanFile,
        /// Relative to the root.
        path: PathBuf,
        /// The first of the file's names is read, the others are not.
        is_first: bool,
        /// What became of it; set by the thread that stored it.
        outcome: FileOutcome,
    },
}

#[derive(Debug)]
struct Batch {
    number: u64,
    items: Vec<Item>,
    /// Bytes taken from the room.
    cost: usize,
}

/// What all threads of the pipeline need.
pub(super) struct Pipeline<'p, 's> {
    pub(super) repository: &'p Repository,
    pub(super) index: &'p LocalIndex,
    pub(super) store: &'p Store<'s>,
    /// The folders that files are read from.
    pub(super) bases: &'p [PathBuf],
    pub(super) hard_links: &'p BTreeMap<FileKey, HardLinks>,
    pub(super) progress: &'p Progress,
    pub(super) cancel: &'p Cancel,
}

impl Pipeline<'_, '_> {
    /// Stores all files with so many threads; `take` gets the items in the order of the scan.
    pub(super) fn run(
        &self,
        items: SpoolReader<ScanItem>,
        threads: usize,
        mut take: impl FnMut(Item) -> Result<(), PushError>,
    ) -> Result<(), PushError> {
        let room = Room::default();
        let (to_workers, batches) = bounded(WAITING);
        let (to_end, done) = bounded(WAITING);
        let results = std::thread::scope(|scope| {
            let room = &room;
            let feeder = task::spawn_scoped(scope, "push-list", move || self.feed(items, &to_workers, room));
            let workers: Vec<_> = (0..threads.max(1))
                .map(|_| {
                    let (batches, to_end) = (batches.clone(), to_end.clone());
                    task::spawn_scoped(scope, "push", move || room.guard(|| self.work(&batches, &to_end, room)))
                })
                .collect();
            // So that each end sees when the other is gone.
            drop((batches, to_end));
            let taken = room.guard(|| in_order(done, room, &mut take));
            let mut results = vec![taken, task::join(feeder)];
            results.extend(workers.into_iter().map(task::join));
            results
        });
        // The first real error says more than the interruptions it caused.
        let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| matches!(error, PushError::Interrupted));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Reads the scan into batches.
    fn feed(&self, items: SpoolReader<ScanItem>, batches: &Sender<Batch>, room: &Room) -> Result<(), PushError> {
        let mut feeder = Feeder {
            average: index(self.repository.config.chunker.avg_bytes.into()),
            hard_links: self.hard_links,
            seen: BTreeSet::new(),
            above: PathBuf::new(),
        };
        let mut batch = Batch { number: 0, items: Vec::with_capacity(BATCH_ITEMS), cost: 0 };
        let mut bytes = 0;
        for item in items {
            let (item, cost, len) = feeder.take(item)?;
            batch.items.push(item);
            batch.cost += cost;
            bytes += len;
            if batch.items.len() == BATCH_ITEMS || bytes >= BATCH_BYTES {
                let next = Batch { number: batch.number + 1, items: Vec::with_capacity(BATCH_ITEMS), cost: 0 };
                hand_on(std::mem::replace(&mut batch, next), batches, room)?;
                bytes = 0;
            }
        }
        hand_on(batch, batches, room)
    }

    /// One thread that stores files.
    fn work(&self, batches: &Receiver<Batch>, done: &Sender<Batch>, room: &Room) -> Result<(), PushError> {
        let mut worker = Worker::new(self.repository, self.index, self.store, self.progress);
        let notices = self.repository.around.notices.as_ref();
        while let Ok(mut batch) = batches.recv() {
            for item in &mut batch.items {
                let Item::File { file, path, is_first, outcome } = item else { continue };
                if self.cancel.is_cancelled() || self.store.has_failed() || room.is_closed() {
                    worker.finish()?;
                    return Err(PushError::Interrupted);
                }
                let source = self.bases[file.base].join(&*path);
                if *is_first {
                    *outcome = worker.store_file(file, path, &source)?;
                }
                content::tell(outcome, &source, notices);
                Progress::add(&self.progress.files, 1);
            }
            done.send(batch).map_err(|_nobody_takes_it| PushError::Interrupted)?;
        }
        worker.finish()
    }
}

/// Hands the items on in their order.
fn in_order(
    done: Receiver<Batch>,
    room: &Room,
    take: &mut impl FnMut(Item) -> Result<(), PushError>,
) -> Result<(), PushError> {
    let mut early: BTreeMap<u64, Batch> = BTreeMap::new();
    let mut next = 0;
    for batch in done {
        early.insert(batch.number, batch);
        while let Some(batch) = early.remove(&next) {
            batch.items.into_iter().try_for_each(&mut *take)?;
            room.give(batch.cost);
            next += 1;
        }
    }
    // A thread that ended early says why.
    if early.is_empty() { Ok(()) } else { Err(PushError::Interrupted) }
}

fn hand_on(batch: Batch, batches: &Sender<Batch>, room: &Room) -> Result<(), PushError> {
    if !room.take(batch.cost) {
        return Err(PushError::Interrupted);
    }
    batches.send(batch).map_err(|_nobody_takes_it| PushError::Interrupted)
}

/// Turns the walk into items that stand for themselves.
struct Feeder<'f> {
    /// Bytes of a chunk.
    average: usize,
    hard_links: &'f BTreeMap<FileKey, HardLinks>,
    /// Names met of files that have several.
    seen: BTreeSet<FileKey>,
    /// The folder that is walked.
    above: PathBuf,
}

impl Feeder<'_> {
    /// With what it will hold in memory, and its length if it is read.
    fn take(&mut self, item: Result<ScanItem, SpoolError>) -> Result<(Item, usize, u64), PushError> {
        Ok(match item? {
            ScanItem::File(file) => {
                let is_first = !self.hard_links.contains_key(&file.key()) || self.seen.insert(file.key());
                let path = self.above.join(OsStr::from_bytes(&file.name));
                let size = usize::try_from(file.stamp.size).unwrap_or(usize::MAX);
                let content = if size <= INLINE_MAX {
                    size
                } else {
                    (size / self.average + 1).min(ENTRY_CHUNKS_MAX) * CHUNK_BYTES
                };
                let cost = ITEM_BYTES + path.as_os_str().len() + content;
                let len = if is_first { file.stamp.size } else { 0 };
                (Item::File { file, path, is_first, outcome: FileOutcome::OtherName }, cost, len)
            }
            other => {
                match &other {
                    ScanItem::Enter { name, .. } => self.above.push(OsStr::from_bytes(name)),
                    ScanItem::Leave => drop(self.above.pop()),
                    ScanItem::Symlink { .. } | ScanItem::File(_) => {}
                }
                (Item::Other(other), ITEM_BYTES, 0)
            }
        })
    }
}

/// Bytes that batches may hold together.
#[derive(Debug, Default)]
struct Room {
    used: Mutex<usize>,
    is_closed: AtomicBool,
    changed: Condvar,
}

impl Room {
    /// Waits until there is room; a batch larger than all of it goes alone. `false` once the room is closed.
    fn take(&self, bytes: usize) -> bool {
        let mut used = self.used.lock();
        while !self.is_closed() && *used > 0 && *used + bytes > ROOM_BYTES {
            self.changed.wait(&mut used);
        }
        *used += bytes;
        !self.is_closed()
    }

    fn give(&self, bytes: usize) {
        *self.used.lock() -= bytes;
        self.changed.notify_all();
    }

    /// Closes the room if the work fails or panics, so that nobody waits for what will not come.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T, PushError>) -> Result<T, PushError> {
        let mut closing = Closing { room: self, is_done: false };
        let result = work();
        closing.is_done = result.is_ok();
        result
    }

    /// Nothing more is taken in.
    fn close(&self) {
        let _so_that_no_wait_misses_it = self.used.lock();
        self.is_closed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Closes the room unless the work was done.
struct Closing<'r> {
    room: &'r Room,
    is_done: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.room.close();
        }
    }
}

//! Restoring a version into a folder: only what is missing is read, and nothing is written that is not verified.

mod place;
mod plan;
mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_format::{SnapshotId, Totals};

use self::place::Place;
pub use self::place::PlaceError;
use self::plan::{Plan, PlanFile, Step};
use self::work::Worker;
use crate::cancel::Cancel;
use crate::chunker::FastCdc;
use crate::class::{Classify, ErrorClass};
use crate::clock::Clock;
use crate::index::IndexError;
use crate::numbers::index;
use crate::pattern::PatternError;
use crate::pieces::PieceReader;
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError};
use crate::source::{Traffic, Want};
use crate::spool::SpoolError;
use crate::sync::{Mutex, Receiver, Sender, bounded};
use crate::task;
use crate::tree::for_each_chunk;

/// What to fetch and how.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// Folder to restore into; made if it is not there.
    pub dest: PathBuf,
    /// Patterns over relative paths (see [`crate::pattern`]); empty means everything.
    pub include: Vec<String>,
    /// Patterns over relative paths that are left out.
    pub exclude: Vec<String>,
    /// Remove what the version does not have.
    pub delete: bool,
    /// Use only what is in the folder already; ask no origin for file content.
    pub offline: bool,
    /// Where a list of files is kept that is too long for memory.
    pub cache: PathBuf,
    /// Threads that read, decode, verify and write.
    pub threads: usize,
}

/// What a fetch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchReport {
    /// The version.
    pub snapshot: SnapshotId,
    /// What was asked for: all of it is there and verified.
    pub totals: Totals,
    /// Files that were written.
    pub files_written: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Plain bytes of chunks that came from a source.
    pub payload_bytes: u64,
    /// Where they came from, and what moved for them, manifest included.
    pub traffic: Traffic,
    /// Plain bytes that were in the folder already.
    pub local_bytes: u64,
    /// Names removed by `delete`.
    pub deleted: u64,
}

/// A fetch failed. Every file under its final name is right; the next fetch goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The folder cannot be written as wanted.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The version cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The index cannot be read or written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// What has to be there cannot be noted.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// A pattern is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Offline, and something is missing.
    #[error("{missing_files} files ({missing_bytes} bytes) are missing, the first is {}; run again without --offline", first.display())]
    Offline {
        /// Files that are not there.
        missing_files: u64,
        /// Their bytes that are not there.
        missing_bytes: u64,
        /// The first of them.
        first: PathBuf,
    },
    /// Asked to stop.
    #[error("interrupted; what has been fetched is kept, and the next fetch goes on from there")]
    Interrupted,
}

impl Classify for FetchError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Place(source) => source.class(),
            Self::Read(source) => source.class(),
            Self::Index(source) => source.class(),
            Self::Spool(source) => source.class(),
            Self::Pattern(_) => ErrorClass::Usage,
            Self::Offline { .. } => ErrorClass::NotFound,
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&Path> {
        match self {
            Self::Index(source) => source.damaged_index(),
            Self::Read(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// What the threads count.
#[derive(Debug, Default)]
struct Counts {
    files_written: AtomicU64,
    bytes_written: AtomicU64,
    payload_bytes: AtomicU64,
    local_bytes: AtomicU64,
}

/// Restores a version into a folder.
///
/// # Errors
/// [`FetchError`]; no file under its final name is wrong then.
pub fn fetch(
    reader: &ChunkReader,
    clock: &dyn Clock,
    snapshot: SnapshotId,
    options: &FetchOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<FetchReport, FetchError> {
    let place = Place::open(&options.dest)?;
    let before = reader.source().traffic();
    let root = reader.snapshot(snapshot)?;
    let mut plan = Plan::read(reader, &root, options)?;
    Progress::add(&progress.files_total, plan.totals.files);
    Progress::add(&progress.bytes_total, plan.totals.bytes);
    let counts = Counts::default();
    let mut deleted = 0;
    if options.delete && !options.offline {
        deleted = place.remove_others(&mut plan)?;
    }
    if !options.offline {
        place.make_folders(&mut plan)?;
    }
    if reader.source().bills() && !options.offline {
        reserve(reader, &mut plan, &place)?;
    }
    let missing = Mutex::new(Missing::default());
    let make_worker = || Worker {
        pieces: PieceReader::new(reader),
        place: &place,
        options,
        counts: &counts,
        progress,
        chunker: FastCdc::new(&root.chunker),
        missing: &missing,
        buffers: work::Buffers::default(),
    };
    store_files(&mut plan, options.threads, &make_worker, cancel)?;
    missing.into_inner().report()?;
    if !options.offline {
        place.finish(&mut plan, &root, reader.index(), clock)?;
    }
    Ok(FetchReport {
        snapshot,
        totals: plan.totals,
        files_written: counts.files_written.load(Ordering::Relaxed),
        bytes_written: counts.bytes_written.load(Ordering::Relaxed),
        payload_bytes: counts.payload_bytes.load(Ordering::Relaxed),
        traffic: reader.source().traffic().since(&before),
        local_bytes: counts.local_bytes.load(Ordering::Relaxed),
        deleted,
    })
}

/// Sets aside what is going to be paid: the chunks of all files that are not there with their length. What files that are
/// there turn out to lack is paid as it comes.
fn reserve(reader: &ChunkReader, plan: &mut Plan, place: &Place) -> Result<(), FetchError> {
    let mut wants = std::collections::BTreeSet::new();
    let mut last = place::LastFolder::default();
    plan.each(|_, step| {
        let Step::File(file) = step else { return Ok(()) };
        let len = place.stat(&file.path, &mut last).ok().and_then(|stat| u64::try_from(stat.st_size).ok());
        if file.same_as.is_some() || len == Some(file.entry.size) {
            return Ok(());
        }
        for_each_chunk::<FetchError>(reader, &file.entry, |chunk| {
            wants.insert(Want { id: chunk.id, len: chunk.len });
            Ok(())
        })
    })?;
    let wants: Vec<Want> = wants.into_iter().collect();
    Ok(reader.source().reserve(&wants)?)
}

/// Small files done together, so that their chunks are read in long runs.
const UNIT_FILES: usize = 256;
const UNIT_BYTES: u64 = 4 << 20;
/// Units waiting for a thread, of about a MiB at most.
const UNITS_WAITING: usize = 8;

/// Hands neighbouring files to several threads; the first real error wins.
fn store_files<'w>(
    plan: &mut Plan,
    threads: usize,
    make_worker: &(impl Fn() -> Worker<'w> + Sync),
    cancel: &Cancel,
) -> Result<(), FetchError> {
    let threads = threads.clamp(1, index(plan.totals.files.max(1)));
    let failed = AtomicBool::new(false);
    let (sender, units) = bounded::<Vec<PlanFile>>(UNITS_WAITING);
    let work = |units: Receiver<Vec<PlanFile>>| {
        let mut worker = make_worker();
        for unit in units {
            if cancel.is_cancelled() || failed.load(Ordering::Relaxed) {
                return Err(FetchError::Interrupted);
            }
            let before = worker.pieces.payload_bytes();
            let done = worker.unit(&unit);
            Progress::add(&worker.counts.payload_bytes, worker.pieces.payload_bytes() - before);
            if done.is_err() {
                // The others stop at their next unit.
                failed.store(true, Ordering::Relaxed);
                return done;
            }
        }
        Ok(())
    };
    let work = &work;
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let units = units.clone();
                task::spawn_scoped(scope, "fetch", move || work(units))
            })
            .collect();
        // So that handing out ends with the last thread.
        drop(units);
        let mut results = vec![hand_out(plan, &sender)];
        drop(sender);
        results.extend(workers.into_iter().map(task::join));
        results
    });
    let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| matches!(error, FetchError::Interrupted));
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn hand_out(plan: &mut Plan, units: &Sender<Vec<PlanFile>>) -> Result<(), FetchError> {
    let hand = |unit| units.send(unit).map_err(|_all_threads_ended| FetchError::Interrupted);
    let (mut unit, mut bytes) = (Vec::new(), 0_u64);
    plan.each(|_, step| {
        let Step::File(file) = step else { return Ok(()) };
        let is_full = unit.len() == UNIT_FILES || bytes.saturating_add(file.entry.size) > UNIT_BYTES;
        if is_full && !unit.is_empty() {
            bytes = 0;
            hand(std::mem::take(&mut unit))?;
        }
        bytes = bytes.saturating_add(file.entry.size);
        unit.push(file);
        Ok(())
    })?;
    if unit.is_empty() { Ok(()) } else { hand(unit) }
}

/// Offline: what is not there.
#[derive(Debug, Default)]
struct Missing {
    files: u64,
    bytes: u64,
    /// The first file, with its number.
    first: Option<(u64, PathBuf)>,
}

impl Missing {
    fn add(&mut self, file: &PlanFile) {
        self.files += 1;
        self.bytes += file.entry.size;
        if self.first.as_ref().is_none_or(|(number, _)| file.number < *number) {
            self.first = Some((file.number, file.path.clone()));
        }
    }

    fn report(self) -> Result<(), FetchError> {
        let Some((_, first)) = self.first else { return Ok(()) };
        Err(FetchError::Offline { missing_files: self.files, missing_bytes: self.bytes, first })
    }
}

//! Restoring a version into a folder: only what is missing is read, and nothing is written that is not verified.

mod place;
mod plan;
mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_format::{SnapshotId, Totals};

use self::place::Place;
pub use self::place::PlaceError;
use self::plan::Plan;
use self::work::Worker;
use crate::cancel::Cancel;
use crate::chunker::FastCdc;
use crate::class::{Classify, ErrorClass};
use crate::clock::Clock;
use crate::index::IndexError;
use crate::pattern::PatternError;
use crate::pieces::PieceReader;
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError};
use crate::source::{Traffic, Want};
use crate::sync::Mutex;
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
    let plan = Plan::read(reader, &root, options)?;
    Progress::add(&progress.files_total, plan.totals.files);
    Progress::add(&progress.bytes_total, plan.totals.bytes);
    let counts = Counts::default();
    let mut deleted = 0;
    if options.delete && !options.offline {
        deleted = place.remove_others(&plan)?;
    }
    if !options.offline {
        place.make_folders(&plan)?;
    }
    if reader.source().bills() && !options.offline {
        reserve(reader, &plan, &place)?;
    }
    let missing = Mutex::new(Vec::new());
    let work = |worker: &mut Worker<'_>, next: &Mutex<std::ops::Range<usize>>| -> Result<(), FetchError> {
        loop {
            let Some(unit) = next.lock().next() else { return Ok(()) };
            if cancel.is_cancelled() {
                return Err(FetchError::Interrupted);
            }
            let before = worker.pieces.payload_bytes();
            let done = worker.unit(&plan.units[unit]);
            Progress::add(&counts.payload_bytes, worker.pieces.payload_bytes() - before);
            done?;
        }
    };
    run_threads(options.threads, plan.units.len(), &work, || Worker {
        pieces: PieceReader::new(reader),
        place: &place,
        plan: &plan,
        options,
        counts: &counts,
        progress,
        chunker: FastCdc::new(&root.chunker),
        missing: &missing,
        buffers: work::Buffers::default(),
    })?;
    report_missing(&plan, missing.into_inner())?;
    if !options.offline {
        place.finish(&plan, &root)?;
        place.remember(&plan, reader.index(), clock)?;
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
fn reserve(reader: &ChunkReader, plan: &Plan, place: &Place) -> Result<(), FetchError> {
    let mut wants = std::collections::BTreeSet::new();
    let mut last = place::LastFolder::default();
    for file in plan.files.iter().filter(|file| file.same_as.is_none()) {
        let len = place.stat(&file.path, &mut last).ok().and_then(|stat| u64::try_from(stat.st_size).ok());
        if len == Some(file.entry.size) {
            continue;
        }
        for_each_chunk::<FetchError>(reader, &file.entry, |chunk| {
            wants.insert(Want { id: chunk.id, len: chunk.len });
            Ok(())
        })?;
    }
    let wants: Vec<Want> = wants.into_iter().collect();
    Ok(reader.source().reserve(&wants)?)
}

/// Runs the same work in several threads over one range of unit numbers; the first real error wins.
fn run_threads<'w>(
    threads: usize,
    units: usize,
    work: &(impl Fn(&mut Worker<'w>, &Mutex<std::ops::Range<usize>>) -> Result<(), FetchError> + Sync),
    make: impl Fn() -> Worker<'w> + Sync,
) -> Result<(), FetchError> {
    let next = Mutex::new(0..units);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, units.max(1)))
            .map(|_| {
                task::spawn_scoped(scope, "fetch", || {
                    let result = work(&mut make(), &next);
                    if result.is_err() {
                        // The others stop at their next unit.
                        *next.lock() = 0..0;
                    }
                    result
                })
            })
            .collect();
        threads.into_iter().map(task::join).collect::<Vec<_>>()
    });
    let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| matches!(error, FetchError::Interrupted));
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn report_missing(plan: &Plan, mut missing: Vec<(usize, u64)>) -> Result<(), FetchError> {
    missing.sort_unstable();
    let Some((first, _)) = missing.first() else { return Ok(()) };
    let mut files: Vec<usize> = missing.iter().map(|(file, _)| *file).collect();
    files.dedup();
    Err(FetchError::Offline {
        missing_files: files.len() as u64,
        missing_bytes: missing.iter().map(|(_, bytes)| bytes).sum(),
        first: Path::new(&plan.files[*first].path).to_owned(),
    })
}

//! Storing a folder as a new version of a ref, which may be the checkpoint of a training step.

mod bases;
mod commit;
mod content;
mod equal;
mod restore;
mod sign;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_format::{
    ChunkId, Directory, Entry, EntryKind, FileEntry, FrameKind, LogState, RefName, RefVersion, Snapshot, SnapshotId,
};

use self::bases::Parent;
use self::content::{FileOutcome, Worker};
pub use self::restore::Donor;
pub(crate) use self::restore::{Chunks, restore};
pub use self::sign::{Signer, Unsigned};
use self::store::{Store, Storing};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::codec::CodecError;
use crate::index::{IndexError, LocalIndex, StatRecord};
use crate::log::LogError;
use crate::packer::PackError;
use crate::progress::{Progress, Warning};
use crate::repository::{OpenError, ReadError, Repository};
use crate::scan::{Scan, ScanDir, ScanError, ScanKind, ScanOptions, scan};
use crate::sync::Mutex;
use crate::task;
use crate::tree::{NodeSink, build_directory};

/// Records of files written to the index at once.
const STATS_BATCH: usize = 4096;

/// What a ref must be for a push to move it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// No such ref.
    Absent,
    /// A version whose id starts so.
    Prefix(String),
}

/// Whether new chunks are stored as patches of what lies in their place in the parent version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Patching {
    /// If the repository is a folder: reading what lies there costs nothing.
    #[default]
    Local,
    /// Also where the old chunks have to be read from a remote store, and paid for.
    Always,
    /// No.
    Never,
}

/// What to push and how.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// A folder or file, or several that are stored beside each other by their last names.
    pub paths: Vec<PathBuf>,
    /// Ref to move.
    pub name: RefName,
    /// Refuse if the ref is anything else.
    pub expect: Option<Expect>,
    /// The training step that this is the checkpoint of. A ref has each step once: an equal one is there already, an
    /// unequal one is refused.
    pub step: Option<u64>,
    /// The version this one was made from; the newest of the ref if it is not known.
    pub parent: Option<SnapshotId>,
    /// Signs the version, if it is the checkpoint of a step.
    pub signer: Option<Arc<dyn Signer>>,
    /// Labels of the snapshot.
    pub labels: BTreeMap<String, String>,
    /// Patterns in the manner of `.gitignore`.
    pub exclude: Vec<String>,
    /// Move the ref although the source changed while it was read.
    pub allow_changed: bool,
    /// Find out what would be stored, and store nothing.
    pub dry_run: bool,
    /// Whether to look for bases of new chunks.
    pub patching: Patching,
    /// Threads that read, cut, hash and encode.
    pub threads: usize,
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushReport {
    /// The version that stands for the folder.
    pub snapshot: SnapshotId,
    /// Its sequence in the ref. In a dry run the one it would get.
    pub sequence: u64,
    /// The version it was made from.
    pub parent: Option<SnapshotId>,
    /// The chunk with its signature.
    pub envelope: Option<ChunkId>,
    /// Whether the log got a record: not for an equal version, not in a dry run.
    pub committed: bool,
    /// What the folder holds.
    pub totals: forebay_format::Totals,
    /// Data chunks of all files.
    pub chunks: u64,
    /// Data chunks that were not there before.
    pub new_chunks: u64,
    /// Their plain bytes.
    pub new_bytes: u64,
    /// Bytes added to the origin: packs and index segments.
    pub stored_bytes: u64,
    /// Special files left out.
    pub skipped: u64,
    /// Files that changed while they were read.
    pub changed: u64,
    /// Files that vanished before they were read.
    pub vanished: u64,
}

/// A push failed. The ref is as it was; what has been sent is remembered and not sent again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The folder cannot be listed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What the file system says.
        source: std::io::Error,
    },
    /// The source changed while it was read, and nobody said that this is fine.
    #[error(
        "the source changed while it was read ({changed} changed, {vanished} vanished): the ref was not moved; \
         push again when it is quiet, or with --allow-changed"
    )]
    Changed {
        /// Files that changed.
        changed: u64,
        /// Files that vanished.
        vanished: u64,
    },
    /// The ref is not what was expected.
    #[error("{name} is {} and not {expected}: it was not moved", found.map_or_else(|| "absent".to_owned(), |id| id.to_hex()))]
    Conflict {
        /// The ref.
        name: RefName,
        /// What was expected.
        expected: String,
        /// What was found.
        found: Option<SnapshotId>,
    },
    /// A checkpoint without a file in it.
    #[error("there are no files in {}: a checkpoint without files is neither stored nor signed", path.display())]
    NoFiles {
        /// The first path.
        path: PathBuf,
    },
    /// The ref has another checkpoint of this step.
    #[error(
        "{name}@{step} is there already and is not equal: it is {found}, this would be {new}; \
         a step is never written over, save under another run or step"
    )]
    StepTaken {
        /// The ref.
        name: RefName,
        /// The step.
        step: u64,
        /// What is there.
        found: SnapshotId,
        /// What was to be stored.
        new: SnapshotId,
    },
    /// An encoder failed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Packs cannot be stored.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The store is not fit to be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The index or an old manifest cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The index cannot be read or written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Garbage was collected meanwhile: chunks that were taken for stored may be gone.
    #[error("garbage was collected again and again while this was stored; push again")]
    Collected,
    /// Asked to stop.
    #[error("interrupted; what has been sent is kept, and the next push goes on from there")]
    Interrupted,
}

impl Classify for PushError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Scan(source) => source.class(),
            Self::Source { source, .. } => source.class(),
            Self::Changed { .. } => ErrorClass::Partial,
            Self::NoFiles { .. } => ErrorClass::Usage,
            Self::Conflict { .. } | Self::StepTaken { .. } | Self::Collected => ErrorClass::Conflict,
            Self::Codec(source) => source.class(),
            Self::Pack(source) => source.class(),
            Self::Open(source) => source.class(),
            Self::Read(source) => source.class(),
            Self::Index(source) => source.class(),
            Self::Log(source) => source.class(),
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&Path> {
        match self {
            Self::Index(source) => source.damaged_index(),
            Self::Read(source) => source.damaged_index(),
            Self::Pack(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// Pushes that start again because garbage was collected meanwhile. Each time only what is missing is sent.
const RESTARTS_MAX: u32 = 8;

/// Stores a folder and moves a ref to it.
///
/// # Errors
/// [`PushError`]; the ref is as it was then.
pub fn push(
    repository: &mut Repository,
    options: &PushOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<PushReport, PushError> {
    for _ in 0..RESTARTS_MAX {
        match push_once(repository, options, progress, cancel) {
            Err(PushError::Collected) => {
                tracing::info!("garbage was collected meanwhile: looking again at what is there")
            }
            done => return done,
        }
    }
    Err(PushError::Collected)
}

/// As [`push`], as long as no garbage is collected meanwhile.
fn push_once(
    repository: &mut Repository,
    options: &PushOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<PushReport, PushError> {
    check_expected(repository.state(), options)?;
    let existing = existing_step(repository.state(), options);
    // A step that is there is only compared with.
    let storing = if options.dry_run || existing.is_some() { Storing::Nothing } else { Storing::Push };
    if storing == Storing::Push {
        repository.prepare_to_write()?;
    }
    let scan = list(repository, &options.paths, &options.exclude, progress, cancel)?;
    if scan.files.is_empty() && options.step.is_some() {
        return Err(PushError::NoFiles { path: options.paths.first().cloned().unwrap_or_default() });
    }
    let index = repository.index()?;
    let generation = repository.state().index_generation;
    let ids = repository.around.seed.stream("packs");
    let parent = if existing.is_some() { None } else { parent(repository, options) };
    let store = Store::new(repository, &index, &ids, storing).with_parent(parent);
    let (made, stored) = store.run(|store| {
        let outcomes = store_files(repository, &index, store, &scan, options.threads, progress, cancel)?;
        let (changed, vanished) = lost(&scan, &outcomes);
        if changed + vanished > 0 && !options.allow_changed {
            return Err(PushError::Changed { changed, vanished });
        }
        let (snapshot, totals) = store_tree(repository, store, &scan, &outcomes, &options.labels)?;
        // For the place the ref seems to have free: should another writer take it, this is signed again.
        let vouched = sign::sign(repository, store, options, snapshot, totals)?;
        Ok(Made { outcomes, snapshot, totals, vouched })
    })?;
    // Everything is durable and remembered; the ref has not moved yet.
    if cancel.is_cancelled() {
        return Err(PushError::Interrupted);
    }
    let mut report = report(&scan, &made, &store, stored.bytes);
    drop(store);
    if let Some(version) = existing {
        equal::check(repository, &scan, &made, version, options, &mut report)?;
    } else if options.dry_run {
        commit::rehearse(repository.state(), options, &mut report);
    } else {
        let stored = commit::commit(repository, &index, options, generation, &made, stored, &mut report)?;
        index.commit_segments(&stored.segments, &stored.packs)?;
        remember(repository, &index, &scan, &made.outcomes, generation)?;
    }
    Ok(report)
}

/// What a push has stored before it moves the ref.
struct Made {
    outcomes: Vec<FileOutcome>,
    snapshot: SnapshotId,
    totals: forebay_format::Totals,
    vouched: Option<sign::Vouched>,
}

/// The version that has the step already.
fn existing_step(state: &LogState, options: &PushOptions) -> Option<RefVersion> {
    state.find_step(&options.name, options.step?).cloned()
}

/// The version that new chunks are compared with. One that cannot be read is none: every chunk can be stored whole.
fn parent(repository: &mut Repository, options: &PushOptions) -> Option<Parent> {
    let wanted = match options.patching {
        Patching::Local => repository.origin().folder().is_some(),
        Patching::Always => true,
        Patching::Never => false,
    };
    let newest = repository.state().newest(&options.name).map(|version| version.snapshot);
    let snapshot = options.parent.or(newest).filter(|_| wanted)?;
    let read = repository.reader().and_then(|reader| Ok((reader.snapshot(snapshot)?.root, reader)));
    match read {
        Ok((root, reader)) => Some(Parent { reader, root }),
        Err(error) => {
            tracing::debug!(%error, %snapshot, "new chunks are not compared with the parent version");
            None
        }
    }
}

/// Lists what is to be stored.
fn list(
    repository: &Repository,
    paths: &[PathBuf],
    exclude: &[String],
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Scan, ScanError> {
    let own_folders: Vec<PathBuf> =
        repository.origin().folder().cloned().into_iter().chain([repository.around.cache.clone()]).collect();
    let scan_options = ScanOptions { exclude, own_folders: &own_folders };
    scan(paths, &scan_options, progress, repository.around.notices.as_ref(), cancel)
}

/// What was done so far; the ref's part is filled in later.
fn report(scan: &Scan, made: &Made, store: &Store<'_>, stored_bytes: u64) -> PushReport {
    let (changed, vanished) = lost(scan, &made.outcomes);
    let counts = &store.counts;
    PushReport {
        snapshot: made.snapshot,
        sequence: 0,
        parent: None,
        envelope: None,
        committed: false,
        totals: made.totals,
        chunks: counts.chunks.load(Ordering::Relaxed),
        new_chunks: counts.new_chunks.load(Ordering::Relaxed),
        new_bytes: counts.new_bytes.load(Ordering::Relaxed),
        stored_bytes,
        skipped: scan.skipped,
        changed,
        vanished,
    }
}

/// Files that changed while they were read, and names that vanished.
fn lost(scan: &Scan, outcomes: &[FileOutcome]) -> (u64, u64) {
    let count = |wanted: fn(&FileOutcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count() as u64;
    let changed = count(|outcome| matches!(outcome, FileOutcome::Changed(_)));
    (changed, scan.vanished + count(|outcome| matches!(outcome, FileOutcome::Vanished)))
}

/// Reads and stores all files with several threads. The outcomes are in the order of the scan's files.
fn store_files(
    repository: &Repository,
    index: &LocalIndex,
    store: &Store<'_>,
    scan: &Scan,
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Vec<FileOutcome>, PushError> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<FileOutcome>>> =
        Mutex::new(std::iter::repeat_with(|| None).take(scan.files.len()).collect());
    let notices = repository.around.notices.as_ref();
    let work = || -> Result<(), PushError> {
        let mut worker = Worker::new(repository, index, store, scan, progress);
        loop {
            let batch = content::next_batch(&next, &scan.files);
            if batch.is_empty() {
                return worker.finish();
            }
            for number in batch {
                if cancel.is_cancelled() || store.has_failed() {
                    worker.finish()?;
                    return Err(PushError::Interrupted);
                }
                let outcome = worker.store_file(number)?;
                content::tell(&outcome, &scan.path(&scan.files[number]), notices);
                outcomes.lock()[number] = Some(outcome);
            }
        }
    };
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| task::spawn_scoped(scope, "push", work)).collect();
        workers.into_iter().map(task::join).collect::<Vec<_>>()
    });
    // The first real error says more than the interruptions it caused.
    let mut results: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    results.sort_by_key(|error| matches!(error, PushError::Interrupted));
    if let Some(error) = results.into_iter().next() {
        return Err(error);
    }
    let outcomes = outcomes.into_inner();
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("every number was handed out once and done")).collect())
}

/// Stores the manifest bottom-up and the snapshot.
fn store_tree(
    repository: &Repository,
    store: &Store<'_>,
    scan: &Scan,
    outcomes: &[FileOutcome],
    labels: &BTreeMap<String, String>,
) -> Result<(SnapshotId, forebay_format::Totals), PushError> {
    let mut sink = store.manifest_sink();
    let root = store_dir(&mut sink, &scan.root, scan, outcomes)?;
    let snapshot = Snapshot {
        mode: scan.root.mode,
        mtime: scan.root.mtime,
        root,
        chunker: repository.config.chunker,
        labels: labels.clone(),
    };
    sink.store(FrameKind::Snapshot, &snapshot.encode())?;
    sink.finish()?;
    Ok((snapshot.id(), root.totals))
}

fn store_dir<S: NodeSink<Error = PushError>>(
    sink: &mut S,
    dir: &ScanDir,
    scan: &Scan,
    outcomes: &[FileOutcome],
) -> Result<Directory, PushError> {
    let mut entries = Vec::with_capacity(dir.entries.len());
    for entry in &dir.entries {
        let name = entry.name.to_vec();
        match &entry.kind {
            ScanKind::Dir(below) => {
                let directory = store_dir(sink, below, scan, outcomes)?;
                entries.push(Entry { name, mode: below.mode, mtime: below.mtime, kind: EntryKind::Dir(directory) });
            }
            ScanKind::Symlink { mode, mtime, target } => {
                let kind = EntryKind::Symlink(target.to_vec());
                entries.push(Entry { name, mode: *mode, mtime: *mtime, kind });
            }
            ScanKind::File(number) => {
                let file = &scan.files[*number];
                let stored = outcomes[file.same_as.unwrap_or(*number)].stored();
                let Some(stored) = stored else { continue };
                let kind = EntryKind::File(FileEntry {
                    size: stored.stamp.size,
                    digest: stored.digest,
                    content: stored.content.clone().expect("content of a stored file is known"),
                    holes: stored.holes.clone(),
                    hard_link: file.hard_link,
                });
                entries.push(Entry { name, mode: file.mode, mtime: stored.stamp.mtime, kind });
            }
        }
    }
    build_directory(sink, entries)
}

fn check_expected(state: &LogState, options: &PushOptions) -> Result<(), PushError> {
    let found = state.newest(&options.name).map(|version| version.snapshot);
    let (holds, expected) = match &options.expect {
        None => return Ok(()),
        Some(Expect::Absent) => (found.is_none(), "absent"),
        Some(Expect::Prefix(prefix)) => (found.is_some_and(|id| id.to_hex().starts_with(prefix)), prefix.as_str()),
    };
    if holds {
        return Ok(());
    }
    Err(PushError::Conflict { name: options.name.clone(), expected: expected.to_owned(), found })
}

/// Remembers the files that were read, so that the next push reads only what changed. Files that changed so lately that
/// another change could look the same are not remembered.
fn remember(
    repository: &Repository,
    index: &LocalIndex,
    scan: &Scan,
    outcomes: &[FileOutcome],
    generation: u64,
) -> Result<(), PushError> {
    let mut batch: Vec<(u64, u64, StatRecord)> = Vec::new();
    for (file, outcome) in scan.files.iter().zip(outcomes) {
        if let FileOutcome::Stored(record, read_at) = outcome
            && record.stamp.is_settled(*read_at)
        {
            batch.push((file.device, file.inode, StatRecord { generation, ..record.clone() }));
        }
        if batch.len() == STATS_BATCH {
            put_stats(index, &mut batch)?;
        }
    }
    put_stats(index, &mut batch)?;
    tracing::debug!(cache = %repository.around.cache.display(), "remembered the files that were read");
    Ok(())
}

fn put_stats(index: &LocalIndex, batch: &mut Vec<(u64, u64, StatRecord)>) -> Result<(), PushError> {
    index.put_stats(batch.iter().map(|(device, inode, record)| (*device, *inode, record)))?;
    batch.clear();
    Ok(())
}

/// A warning about one file.
fn file_warning(kind: &'static str, path: &Path, what: &str) -> Warning {
    use std::os::unix::ffi::OsStrExt;
    Warning { kind, message: format!("{} {what}", path.display()), path: Some(path.as_os_str().as_bytes().to_vec()) }
}

//! Storing a folder as a new version of a ref, which may be the checkpoint of a training step.

mod bases;
mod commit;
mod content;
mod equal;
mod manifest;
mod pipeline;
mod restore;
mod sign;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_format::{ChunkId, FrameKind, LogState, RefName, RefVersion, Snapshot, SnapshotId};

use self::bases::Parent;
use self::manifest::{Manifest, Remembered};
use self::pipeline::Pipeline;
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
use crate::scan::{Attributes, Scan, ScanError, ScanOptions, scan};
use crate::spool::{Spool, SpoolError};
use crate::tree::NodeSink;

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
    /// What was stored cannot be noted.
    #[error(transparent)]
    Spool(#[from] SpoolError),
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
            Self::Spool(source) => source.class(),
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
    if scan.files == 0 && options.step.is_some() {
        return Err(PushError::NoFiles { path: options.paths.first().cloned().unwrap_or_default() });
    }
    let index = repository.index()?;
    let generation = repository.state().index_generation;
    let ids = repository.around.seed.stream("packs");
    let parent = if existing.is_some() { None } else { parent(repository, options) };
    let store = Store::new(repository, &index, &ids, storing).with_parent(parent);
    let ((made, remembered), stored) = store.run(|store| {
        let skipped = scan.skipped;
        let tree = store_tree(repository, &index, store, scan, options.threads, progress, cancel)?;
        let (changed, vanished) = (tree.changed, tree.vanished);
        if changed + vanished > 0 && !options.allow_changed {
            return Err(PushError::Changed { changed, vanished });
        }
        let totals = tree.root.totals;
        let snapshot = store_snapshot(repository, store, &tree, options.labels.clone())?;
        // For the place the ref seems to have free: should another writer take it, this is signed again.
        let vouched = sign::sign(repository, store, options, snapshot, totals)?;
        let (mode, shape) = (tree.attributes.mode, tree.shape);
        let made = Made { snapshot, totals, mode, shape, vouched, skipped, changed, vanished };
        Ok((made, tree.remembered))
    })?;
    // Everything is durable and remembered; the ref has not moved yet.
    if cancel.is_cancelled() {
        return Err(PushError::Interrupted);
    }
    let mut report = report(&made, &store, stored.bytes);
    drop(store);
    if let Some(version) = existing {
        equal::check(repository, &made, version, options, &mut report)?;
    } else if options.dry_run {
        commit::rehearse(repository.state(), options, &mut report);
    } else {
        let stored = commit::commit(repository, &index, options, generation, &made, stored, &mut report)?;
        index.commit_segments(&stored.segments, &stored.packs)?;
        remember(&index, remembered, generation)?;
    }
    Ok(report)
}

/// What a push has stored before it moves the ref.
struct Made {
    snapshot: SnapshotId,
    totals: forebay_format::Totals,
    /// Of the root folder.
    mode: u32,
    shape: equal::Shape,
    vouched: Option<sign::Vouched>,
    skipped: u64,
    changed: u64,
    vanished: u64,
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
    let scan_options = ScanOptions { exclude, own_folders: &own_folders, cache: &repository.around.cache };
    scan(paths, &scan_options, progress, repository.around.notices.as_ref(), cancel)
}

/// What was done so far; the ref's part is filled in later.
fn report(made: &Made, store: &Store<'_>, stored_bytes: u64) -> PushReport {
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
        skipped: made.skipped,
        changed: made.changed,
        vanished: made.vanished,
    }
}

/// Reads and stores all files with several threads, and the manifest of everything as they come.
fn store_tree(
    repository: &Repository,
    index: &LocalIndex,
    store: &Store<'_>,
    scan: Scan,
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<manifest::Stored, PushError> {
    let Scan { bases, root, items, hard_links, vanished, .. } = scan;
    let mut manifest = Manifest::new(store, root, &hard_links, &repository.around.cache);
    let (bases, hard_links) = (bases.as_slice(), &hard_links);
    let pipeline = Pipeline { repository, index, store, bases, hard_links, progress, cancel };
    pipeline.run(items.read()?, threads, |item| manifest.take(item))?;
    let stored = manifest.finish()?;
    Ok(manifest::Stored { vanished: stored.vanished + vanished, ..stored })
}

/// Stores the snapshot that names a tree.
fn store_snapshot(
    repository: &Repository,
    store: &Store<'_>,
    tree: &manifest::Stored,
    labels: BTreeMap<String, String>,
) -> Result<SnapshotId, PushError> {
    let mut sink = store.manifest_sink();
    let chunker = repository.config.chunker;
    let Attributes { mode, mtime } = tree.attributes;
    let snapshot = Snapshot { mode, mtime, root: tree.root, chunker, labels };
    sink.store(FrameKind::Snapshot, &snapshot.encode())?;
    sink.finish()?;
    Ok(snapshot.id())
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

/// Remembers the files that were read, so that the next push reads only what changed.
fn remember(index: &LocalIndex, files: Spool<Remembered>, generation: u64) -> Result<(), PushError> {
    let mut batch = Vec::new();
    for file in files.read()? {
        let Remembered { device, inode, record } = file?;
        batch.push((device, inode, StatRecord { generation, ..record }));
        if batch.len() == STATS_BATCH {
            put_stats(index, &mut batch)?;
        }
    }
    put_stats(index, &mut batch)
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

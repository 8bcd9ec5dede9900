//! Proving that everything is there and right.

mod packs;
mod version;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_format::{ChunkId, FrameKind, PackId, SnapshotId};

use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass, chain};
use crate::log::{Log, LogError};
use crate::progress::{Notices, Progress, Warning};
use crate::repository::{ReadError, Repository};
use crate::sync::Mutex;

/// What to verify and how.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// One version; `None` means every pack, the whole log and all versions of all refs.
    pub version: Option<SnapshotId>,
    /// Percentage of files (of a version) or packs (of everything) that are read; 100 means all.
    pub sample_percent: f64,
    /// Threads that read and check.
    pub threads: usize,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Chunks that were read and are right.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Chunks that are not there.
    pub missing: u64,
    /// Chunks, nodes or files that are there and wrong.
    pub corrupt: u64,
}

/// Verifying could not be done. Damage is no error: it is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The repository cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Classify for VerifyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read(source) => source.class(),
            Self::Log(source) => source.class(),
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Read(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// What is damaged, by name, for a repair.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Chunks that are missing or wrong in at least one place.
    pub(crate) chunks: BTreeSet<(FrameKind, ChunkId)>,
    /// Packs that are not as they were written.
    pub(crate) packs: BTreeSet<PackId>,
    /// Damage that no chunk brings back: a manifest that contradicts its own chunks.
    pub(crate) others: u64,
}

/// Counts what is found and says each piece of damage as it is found.
#[derive(Debug)]
struct Findings<'f> {
    notices: &'f dyn Notices,
    chunks: AtomicU64,
    bytes: AtomicU64,
    missing: AtomicU64,
    corrupt: AtomicU64,
    damaged: Mutex<Damage>,
}

impl<'f> Findings<'f> {
    fn new(notices: &'f dyn Notices) -> Self {
        let zero = || AtomicU64::new(0);
        let damaged = Mutex::default();
        Self { notices, chunks: zero(), bytes: zero(), missing: zero(), corrupt: zero(), damaged }
    }

    fn good(&self, bytes: u64) {
        Progress::add(&self.chunks, 1);
        Progress::add(&self.bytes, bytes);
    }

    /// Takes damage in that shows in a chunk of this kind; anything else stops.
    fn bad(&self, what: &str, kind: FrameKind, error: ReadError) -> Result<(), VerifyError> {
        if error.class() != ErrorClass::Corrupt {
            return Err(error.into());
        }
        {
            let mut damaged = self.damaged.lock();
            match error.chunk() {
                Some(id) => _ = damaged.chunks.insert((error.kind().unwrap_or(kind), id)),
                None => damaged.others += 1,
            }
        }
        self.count(what, &error);
        Ok(())
    }

    /// As [`Self::bad`]; this chunk cannot be read, and it may be the one or what it is made of that is damaged.
    fn bad_chunk(&self, what: &str, kind: FrameKind, id: ChunkId, error: ReadError) -> Result<(), VerifyError> {
        self.bad(what, kind, error)?;
        self.damaged.lock().chunks.insert((kind, id));
        Ok(())
    }

    /// An index segment that cannot be read.
    fn bad_segment(&self, error: ReadError) -> Result<(), VerifyError> {
        if error.class() != ErrorClass::Corrupt {
            return Err(error.into());
        }
        self.damaged.lock().others += 1;
        self.count("index", &error);
        Ok(())
    }

    /// A pack is not as it was written, whatever becomes of its chunks.
    fn bad_pack(&self, pack: PackId) {
        self.damaged.lock().packs.insert(pack);
    }

    /// Damage that is none of a single chunk.
    fn corrupt(&self, message: String) {
        Progress::add(&self.corrupt, 1);
        self.say("corrupt", message);
    }

    fn count(&self, what: &str, error: &ReadError) {
        let (kind, counter) = match error {
            ReadError::Missing { .. } | ReadError::Pack { .. } => ("missing", &self.missing),
            _ => ("corrupt", &self.corrupt),
        };
        Progress::add(counter, 1);
        self.say(kind, format!("{what}: {}", chain(error)));
    }

    /// How much damage has been found so far.
    fn damage(&self) -> u64 {
        Progress::get(&self.missing) + Progress::get(&self.corrupt)
    }

    fn say(&self, kind: &'static str, message: String) {
        self.notices.warn(Warning { kind, message, path: None });
    }

    fn report(&self) -> VerifyReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VerifyReport {
            chunks: get(&self.chunks),
            bytes: get(&self.bytes),
            missing: get(&self.missing),
            corrupt: get(&self.corrupt),
        }
    }
}

/// Verifies one version or everything.
///
/// # Errors
/// [`VerifyError`] if it could not be done to the end.
pub fn verify(
    repository: &mut Repository,
    options: &VerifyOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<VerifyReport, VerifyError> {
    find(repository, options, progress, cancel).map(|(report, _damage)| report)
}

/// As [`verify`], with what is damaged by name.
pub(crate) fn find(
    repository: &mut Repository,
    options: &VerifyOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<(VerifyReport, Damage), VerifyError> {
    let notices = std::sync::Arc::clone(&repository.around.notices);
    let findings = Findings::new(notices.as_ref());
    match options.version {
        Some(version) => version::verify(repository, version, options, progress, cancel, &findings)?,
        None => {
            // The log as it is in the origin, not as this machine remembers it.
            let mut log = Log::cold(std::sync::Arc::clone(&repository.origin), repository.config.id);
            repository.around.runtime.block_on(log.refresh())?;
            let reader = match repository.reader() {
                Ok(reader) => Some(reader),
                // Segments that are damaged are counted when they are read.
                Err(ReadError::Segment { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            packs::verify(repository, log.state(), options, progress, cancel, &findings, reader.as_ref())?;
            version::verify_manifests(repository, log.state(), cancel, &findings)?;
        }
    }
    let report = findings.report();
    Ok((report, findings.damaged.into_inner()))
}

/// Whether something with this key is in the sample.
fn is_sampled(key: &[u8], seed: &[u8; 32], percent: f64) -> bool {
    if percent >= 100.0 {
        return true;
    }
    let hash = blake3::keyed_hash(seed, key);
    let mut first = [0; 4];
    first.copy_from_slice(&hash.as_bytes()[..4]);
    f64::from(u32::from_le_bytes(first)) < percent / 100.0 * f64::from(u32::MAX)
}

/// About how much of a total is in the sample, for the progress shown.
#[expect(clippy::cast_possible_truncation, reason = "a part of a u64 fits, and it is only shown")]
fn sampled(total: u64, percent: f64) -> u64 {
    (total as f64 * percent.clamp(0.0, 100.0) / 100.0) as u64
}

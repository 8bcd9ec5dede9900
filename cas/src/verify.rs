//! Proving that everything is there and right.

mod packs;
mod version;

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_format::SnapshotId;

use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass, chain};
use crate::log::{Log, LogError};
use crate::progress::{Notices, Progress, Warning};
use crate::repository::{ReadError, Repository};

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

/// Counts what is found and says each piece of damage as it is found.
#[derive(Debug)]
struct Findings<'f> {
    notices: &'f dyn Notices,
    chunks: AtomicU64,
    bytes: AtomicU64,
    missing: AtomicU64,
    corrupt: AtomicU64,
}

impl<'f> Findings<'f> {
    fn new(notices: &'f dyn Notices) -> Self {
        let zero = || AtomicU64::new(0);
        Self { notices, chunks: zero(), bytes: zero(), missing: zero(), corrupt: zero() }
    }

    fn good(&self, bytes: u64) {
        Progress::add(&self.chunks, 1);
        Progress::add(&self.bytes, bytes);
    }

    /// Takes damage in; anything else stops.
    fn bad(&self, what: &str, error: ReadError) -> Result<(), VerifyError> {
        if error.class() != ErrorClass::Corrupt {
            return Err(error.into());
        }
        let (kind, counter) = match error {
            ReadError::Missing { .. } | ReadError::Pack { .. } => ("missing", &self.missing),
            _ => ("corrupt", &self.corrupt),
        };
        Progress::add(counter, 1);
        self.say(kind, format!("{what}: {}", chain(&error)));
        Ok(())
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
    Ok(findings.report())
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

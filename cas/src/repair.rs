//! Bringing back what is damaged, without deleting anything.
//!
//! First segments that cannot be read are made anew from the packs. Then everything is verified, what is damaged is stored again
//! from wherever it still is whole, and packs that are not as they were written are replaced, if nothing is lost with them. The
//! old objects are kept under `quarantine/`; nothing here deletes that.

mod packs;
mod segments;

use std::collections::BTreeSet;

use forebay_format::PackId;

use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::gc::GcError;
use crate::log::LogError;
use crate::packer::PackError;
use crate::progress::Progress;
use crate::push::{Donor, PushError, restore};
use crate::repository::{OpenError, ReadError, Repository};
use crate::verify::{Damage, VerifyError, VerifyOptions, VerifyReport, find};

/// What to repair, and from where.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// What is looked at.
    pub verify: VerifyOptions,
    /// Asked one after the other for what is lost.
    pub donors: Vec<Donor>,
}

/// What was found and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// What was found.
    pub found: VerifyReport,
    /// Chunks that could not be read and can be now, packs that were replaced though all their chunks were whole, and
    /// segments that were made anew.
    pub repaired: u64,
    /// Objects that were replaced; as they were, they lie under `quarantine/`.
    pub quarantined: u64,
    /// Damage that is left.
    pub left: u64,
}

/// A repair could not be done to the end. What it had stored by then counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// It cannot be found out what is damaged.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// What is lost cannot be stored again.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Damaged objects cannot be replaced.
    #[error("damaged objects cannot be replaced")]
    Replace(#[from] GcError),
    /// The store is not fit to be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Others commit all the time.
    #[error("{attempts} commits came in between; nothing was replaced, try again when it is quieter")]
    Busy {
        /// How often it was tried.
        attempts: u32,
    },
    /// Asked to stop.
    #[error("interrupted; what has been stored again is kept")]
    Interrupted,
}

impl From<ReadError> for RepairError {
    fn from(error: ReadError) -> Self {
        Self::Verify(error.into())
    }
}

impl From<LogError> for RepairError {
    fn from(error: LogError) -> Self {
        Self::Verify(error.into())
    }
}

impl From<PackError> for RepairError {
    fn from(error: PackError) -> Self {
        Self::Replace(error.into())
    }
}

impl From<crate::origin::OriginError> for RepairError {
    fn from(error: crate::origin::OriginError) -> Self {
        Self::Replace(error.into())
    }
}

impl Classify for RepairError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Verify(source) => source.class(),
            Self::Push(source) => source.class(),
            Self::Replace(source) => source.class(),
            Self::Open(source) => source.class(),
            Self::Busy { .. } => ErrorClass::Conflict,
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Verify(source) => source.damaged_index(),
            Self::Push(source) => source.damaged_index(),
            Self::Replace(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// Commits of others that may come in between before a repair gives up.
const ATTEMPTS_MAX: u32 = 20;

/// Verifies, and brings back what can be brought back.
///
/// # Errors
/// [`RepairError`] if it could not be done to the end. Damage that is left is no error: it is in the report.
pub fn repair(
    repository: &mut Repository,
    options: &RepairOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<RepairReport, RepairError> {
    repository.prepare_to_write()?;
    let segments = segments::rebuild(repository, cancel)?;
    let (found, damage) = find(repository, &options.verify, progress, cancel)?;
    let mut report = RepairReport {
        found: VerifyReport { corrupt: found.corrupt + segments, ..found },
        repaired: segments,
        quarantined: segments,
        left: damage.others,
    };
    let unreadable = unreadable(repository, &damage)?;
    let threads = options.verify.threads;
    restore(repository, &unreadable, &options.donors, threads, progress, cancel)?;
    let suspects = suspects(repository, &damage)?;
    let replaced = packs::replace(repository, &suspects, cancel)?;
    let lost = self::unreadable(repository, &damage)?;
    report.quarantined += replaced.quarantined;
    report.repaired += (damage.chunks.len() - lost.len()) as u64;
    let chunks_in = |pack: &PackId| replaced.damaged_chunks.contains(pack);
    // What was wrong with these packs was nothing that a chunk could be named for.
    report.repaired +=
        replaced.gone.iter().filter(|pack| damage.packs.contains(pack) && !chunks_in(pack)).count() as u64;
    let stay = damage.packs.iter().filter(|pack| !replaced.gone.contains(pack) && !chunks_in(pack)).count();
    report.left += (lost.len() + stay) as u64;
    Ok(report)
}

/// Of the chunks that are damaged somewhere those that no place has whole.
fn unreadable(repository: &mut Repository, damage: &Damage) -> Result<crate::push::Chunks, RepairError> {
    let reader = repository.reader()?;
    let mut lost = BTreeSet::new();
    for (kind, id) in &damage.chunks {
        match reader.chunk(*id, *kind) {
            Ok(_plain) => {}
            Err(error) if error.class() == ErrorClass::Corrupt => _ = lost.insert((*kind, *id)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lost)
}

/// Packs that are not as they were written: those that were found so, and those that should have a damaged chunk.
fn suspects(repository: &mut Repository, damage: &Damage) -> Result<BTreeSet<PackId>, RepairError> {
    let index = repository.index()?;
    let mut suspects = damage.packs.clone();
    for (_kind, id) in &damage.chunks {
        let places = index.locate(*id).map_err(ReadError::from)?;
        suspects.extend(places.iter().map(|place| place.pack));
    }
    Ok(suspects)
}

/// Where an object is kept that was replaced.
fn quarantine_path(path: &str) -> String {
    format!("quarantine/{}", path.rsplit('/').next().unwrap_or(path))
}

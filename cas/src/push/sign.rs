//! The signature over a checkpoint, made for one place in a ref.

use std::fmt::Debug;

use forebay_format::{ChunkId, FrameKind, RefName, RepositoryId, SnapshotId, Totals};

use super::store::Store;
use super::{PushError, PushOptions};
use crate::repository::Repository;

/// What a signature speaks of: a version, and the place it is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned<'u> {
    /// The repository.
    pub repository: RepositoryId,
    /// The ref.
    pub name: &'u RefName,
    /// The training step.
    pub step: u64,
    /// The number the ref will have.
    pub sequence: u64,
    /// The version the ref is at.
    pub previous: Option<SnapshotId>,
    /// The version itself.
    pub snapshot: SnapshotId,
    /// What it holds.
    pub totals: Totals,
}

/// Signs checkpoints. Called again with another sequence when another writer was faster.
pub trait Signer: Debug + Send + Sync {
    /// The bytes of a signature envelope.
    fn sign(&self, version: &Unsigned<'_>) -> Vec<u8>;
}

/// A signature that is stored and good for one place.
pub(super) struct Vouched {
    pub(super) envelope: ChunkId,
    sequence: u64,
    previous: Option<SnapshotId>,
}

impl Vouched {
    /// Whether it is good for a version behind these.
    pub(super) fn is_for(&self, sequence: u64, previous: Option<SnapshotId>) -> bool {
        (self.sequence, self.previous) == (sequence, previous)
    }
}

/// Signs a version for the next place of its ref and stores the signature; `None` if nobody signs.
pub(super) fn sign(
    repository: &Repository,
    store: &Store<'_>,
    options: &PushOptions,
    snapshot: SnapshotId,
    totals: Totals,
) -> Result<Option<Vouched>, PushError> {
    let (Some(signer), Some(step)) = (&options.signer, options.step) else { return Ok(None) };
    let state = repository.state();
    let sequence = state.next_sequence(&options.name);
    let previous = state.newest(&options.name).map(|version| version.snapshot);
    let (repository_id, name) = (state.repository, &options.name);
    let unsigned = Unsigned { repository: repository_id, name, step, sequence, previous, snapshot, totals };
    let bytes = signer.sign(&unsigned);
    let envelope = ChunkId::of(&bytes);
    let mut sink = store.manifest_sink();
    sink.put(FrameKind::Envelope, envelope, &bytes)?;
    sink.finish()?;
    Ok(Some(Vouched { envelope, sequence, previous }))
}

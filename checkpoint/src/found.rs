//! A checkpoint as the log has it.

use forebay_format::{LogState, RefName, RefVersion, RepositoryId, SnapshotId};

/// One checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The repository.
    pub repository: RepositoryId,
    /// The run: a ref.
    pub run: RefName,
    /// The training step.
    pub step: u64,
    /// The version of the ref.
    pub version: RefVersion,
    /// The version right before it, where the log still tells: `Some(None)` means that there was none.
    pub previous: Option<Option<SnapshotId>>,
}

impl Checkpoint {
    /// The checkpoint that a version of a run is; `None` if the version has no step.
    #[must_use]
    pub fn of(state: &LogState, run: &RefName, version: &RefVersion) -> Option<Self> {
        let step = version.step?;
        let versions = state.find(run).map(|state| state.versions.as_slice()).unwrap_or_default();
        let before = versions.iter().find(|before| before.sequence + 1 == version.sequence);
        let previous = match (before, version.sequence) {
            (Some(before), _) => Some(Some(before.snapshot)),
            (None, 1) => Some(None),
            (None, _) => None,
        };
        Some(Self { repository: state.repository, run: run.clone(), step, version: version.clone(), previous })
    }

    /// The checkpoints of a run, in the order they were saved.
    #[must_use]
    pub fn all(state: &LogState, run: &RefName) -> Vec<Self> {
        let versions = state.find(run).map(|state| state.versions.as_slice()).unwrap_or_default();
        versions.iter().filter_map(|version| Self::of(state, run, version)).collect()
    }
}

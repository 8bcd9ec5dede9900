//! What is to go, as arithmetic: which packs, which versions.

use forebay_format::{Forgotten, LogState, PackId, RefState, RefVersion, Timestamp};

/// A pack of which less than one part in this is alive is written anew.
const REPACK_BELOW: u64 = 2;

/// A pack and how much of it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackUse {
    /// The pack.
    pub(super) id: PackId,
    /// Length of the object in bytes.
    pub(super) len: u64,
    /// Bytes of all frames in it: what lies between them, and the footer, goes with them.
    pub(super) frame_bytes: u64,
    /// Bytes of the frames in it that are needed.
    pub(super) live_bytes: u64,
}

/// What becomes of packs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Nothing in them is alive.
    pub(super) dead: Vec<PackUse>,
    /// What is alive in them is to be copied, then they are as good as dead. The emptiest first.
    pub(super) repack: Vec<PackUse>,
}

/// Chooses packs; at most `repack_bytes` are copied, so that a run has an end and a full disk can take it.
pub(super) fn plan(packs: &[PackUse], mut repack_bytes: u64) -> Plan {
    let (dead, alive): (Vec<PackUse>, Vec<PackUse>) = packs.iter().partition(|pack| pack.live_bytes == 0);
    let mut sparse: Vec<PackUse> =
        alive.into_iter().filter(|pack| pack.live_bytes < pack.frame_bytes / REPACK_BELOW).collect();
    // By share: live of all frames, compared without a division.
    sparse.sort_by(|one, other| {
        let share = |one: &PackUse, other: &PackUse| u128::from(one.live_bytes) * u128::from(other.frame_bytes);
        share(one, other).cmp(&share(other, one)).then(one.id.cmp(&other.id))
    });
    sparse.retain(|pack| match repack_bytes.checked_sub(pack.live_bytes) {
        Some(left) => {
            repack_bytes = left;
            true
        }
        None => false,
    });
    Plan { dead, repack: sparse }
}

/// Which versions are kept beside the newest of each ref and its latest checkpoint. Nothing set: all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// So many of the newest versions of each ref.
    pub keep_last: Option<u64>,
    /// Those that are not older than this.
    pub keep_since: Option<Timestamp>,
    /// Checkpoints of steps that this divides.
    pub keep_every: Option<u64>,
}

impl Retention {
    /// Versions of these refs that nothing keeps, sorted as a record wants them.
    #[must_use]
    pub fn forgets<'s>(&self, refs: impl IntoIterator<Item = &'s RefState>) -> Vec<Forgotten> {
        if *self == Self::default() {
            return Vec::new();
        }
        let forgets = |one: &RefState| Forgotten { name: one.name.clone(), versions: self.forgets_of(&one.versions) };
        refs.into_iter().map(forgets).filter(|one| !one.versions.is_empty()).collect()
    }

    fn forgets_of(&self, versions: &[RefVersion]) -> Vec<u64> {
        let latest_step = versions.iter().rfind(|version| version.step.is_some()).map(|version| version.sequence);
        let newest = versions.last().map(|version| version.sequence);
        let keeps = |(age, version): &(usize, &RefVersion)| {
            Some(version.sequence) == newest
                || Some(version.sequence) == latest_step
                || self.keep_last.is_some_and(|last| (*age as u64) < last)
                || self.keep_since.is_some_and(|since| version.time >= since)
                || self.keep_every.zip(version.step).is_some_and(|(every, step)| every > 0 && step % every == 0)
        };
        let mut gone: Vec<u64> =
            versions.iter().rev().enumerate().filter(|one| !keeps(one)).map(|(_, version)| version.sequence).collect();
        gone.sort_unstable();
        gone
    }
}

/// The state as it will be without these versions.
pub(super) fn without(state: &LogState, forgotten: &[Forgotten]) -> LogState {
    let mut state = state.clone();
    for one in forgotten {
        if let Some(found) = state.refs.iter_mut().find(|known| known.name == one.name) {
            found.versions.retain(|version| !one.versions.contains(&version.sequence));
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use forebay_format::SnapshotId;

    use super::*;

    fn pack(number: u8, frame_bytes: u64, live_bytes: u64) -> PackUse {
        PackUse { id: PackId::from_bytes([number; 16]), len: frame_bytes + 500, frame_bytes, live_bytes }
    }

    #[test]
    fn dead_packs_go_and_sparse_ones_are_copied_as_far_as_that_is_allowed() {
        let packs = [pack(1, 100, 0), pack(2, 100, 50), pack(3, 100, 49), pack(4, 1000, 30), pack(5, 100, 10)];
        let ids = |packs: &[PackUse]| packs.iter().map(|pack| pack.id.as_bytes()[0]).collect::<Vec<_>>();
        let all = plan(&packs, u64::MAX);
        assert_eq!((ids(&all.dead), ids(&all.repack)), (vec![1], vec![4, 5, 3]));
        let some = plan(&packs, 45);
        assert_eq!(ids(&some.repack), [4, 5]);
        assert_eq!(ids(&plan(&packs, 0).repack), [] as [u8; 0]);
        assert_eq!(ids(&plan(&packs, 0).dead), [1]);
    }

    fn version(sequence: u64, seconds: i64, step: Option<u64>) -> RefVersion {
        let time = Timestamp { seconds, nanos: 0 };
        let snapshot = SnapshotId::of(&sequence.to_le_bytes());
        RefVersion {
            sequence,
            snapshot,
            parent: None,
            envelope: None,
            step,
            time,
            log_sequence: sequence,
            writer: String::new(),
        }
    }

    #[test]
    fn versions_are_kept_by_any_rule_and_the_newest_always() {
        let versions: Vec<_> = (1..=6).map(|at| version(at, i64::try_from(at).unwrap() * 10, None)).collect();
        let gone = |retention: Retention| retention.forgets_of(&versions);
        let none = Retention::default();
        assert_eq!(gone(Retention { keep_last: Some(2), ..none }), [1, 2, 3, 4]);
        assert_eq!(gone(Retention { keep_last: Some(0), ..none }), [1, 2, 3, 4, 5]);
        let since = Some(Timestamp { seconds: 25, nanos: 0 });
        assert_eq!(gone(Retention { keep_since: since, ..none }), [1, 2]);
        assert_eq!(gone(Retention { keep_last: Some(1), keep_since: since, ..none }), [1, 2]);
        let steps: Vec<_> = (1..=6).map(|at| version(at, 0, (at < 6).then_some(at * 100))).collect();
        let every = Retention { keep_last: Some(1), keep_every: Some(200), ..none };
        // The latest checkpoint is version 5, the newest version is 6.
        assert_eq!(every.forgets_of(&steps), [1, 3]);
        assert_eq!(none.forgets(&[]), []);
    }
}

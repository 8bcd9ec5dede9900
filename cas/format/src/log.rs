//! The log: the totally ordered record of ref changes, and the states that sum it up.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::gc::{self, Condemned, Forgotten, GcChange};
use crate::{
    ChunkId, DecodeError, Digest, Limits, Nonce, PackId, RefName, RepositoryId, SegmentId, SnapshotId, Timestamp,
    sealed,
};

const RECORD_MAGIC: [u8; 8] = *b"FBYLOGR0";
const STATE_MAGIC: [u8; 8] = *b"FBYLOGS0";
const RECORD: &str = "log record";
const STATE: &str = "log state";
/// Numbers of records, versions and generations stop here, so that whoever counts on from a forged one does not overflow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// An index segment as a log record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(array)]
pub struct SegmentRef {
    /// Random name.
    #[n(0)]
    pub id: SegmentId,
    /// Index generation it is stored under.
    #[n(1)]
    pub generation: u64,
    /// BLAKE3 of the whole object.
    #[n(2)]
    pub digest: Digest,
    /// Length in bytes.
    #[n(3)]
    pub len: u64,
}

/// One ref that a record moves.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RefChange {
    /// The ref.
    #[n(0)]
    pub name: RefName,
    /// Its sequence after this change: one more than before, from 1, also across a removal.
    #[n(1)]
    pub sequence: u64,
    /// What it was before; `None` if there was no such ref.
    #[n(2)]
    pub old: Option<SnapshotId>,
    /// What it is now; `None` if the ref is removed.
    #[n(3)]
    pub new: Option<SnapshotId>,
    /// The version the new one was made from.
    #[n(4)]
    pub parent: Option<SnapshotId>,
    /// The chunk with the signature over the new version.
    #[n(5)]
    pub envelope: Option<ChunkId>,
    /// The training step the new version is a checkpoint of; no two versions of a ref have the same.
    #[n(6)]
    pub step: Option<u64>,
}

/// One record of the log, the object `log/commit/<sequence>`; creating it is the commit.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LogRecord {
    /// The repository, so that a record cannot pass for another's.
    #[n(0)]
    pub repository: RepositoryId,
    /// Number of the record, from 1 without gaps; equal to its object's name.
    #[n(1)]
    pub sequence: u64,
    /// BLAKE3 of the record before as stored; `None` for the first.
    #[n(2)]
    pub previous: Option<Digest>,
    /// Tells the writer whether a record under this number is its own.
    #[n(3)]
    pub nonce: Nonce,
    /// Who wrote it.
    #[n(4)]
    pub writer: String,
    /// Program and version that wrote it.
    #[n(5)]
    pub tool: String,
    /// The writer's clock; for people, never for safety.
    #[n(6)]
    pub time: Timestamp,
    /// The index generation the writer had read: that of the state the record follows, else the record does not count.
    #[n(7)]
    pub index_generation: u64,
    /// Refs moved, sorted by name.
    #[n(8)]
    pub refs: Vec<RefChange>,
    /// Index segments added, of the index generation in which they count.
    #[n(9)]
    pub segments: Vec<SegmentRef>,
    /// A step of a collection of garbage; such a record moves no refs.
    #[n(10)]
    pub gc: Option<GcChange>,
    /// Versions that are forgotten, sorted by ref; such a record moves no refs.
    #[n(11)]
    pub forgotten: Option<Vec<Forgotten>>,
}

impl LogRecord {
    /// The object's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(&RECORD_MAGIC, self)
    }

    /// Reads record number `sequence` of `repository`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or if it is another repository's or another number's record.
    pub fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = RECORD;
        let record: Self = sealed::open(what, &RECORD_MAGIC, bytes, Limits::DEFAULT.log_record_bytes)?;
        if record.sequence != sequence || record.repository != repository {
            return Err(DecodeError::Contradiction {
                what,
                field: "sequence or repository",
                claimed: record.sequence,
                actual: sequence,
            });
        }
        check_sequence(what, sequence)?;
        if record.previous.is_some() != (sequence > 1) {
            return Err(DecodeError::Field { what, field: "previous record", value: sequence });
        }
        check_changes(&record.refs)?;
        gc::check_record(&record)?;
        check_time(what, record.time)?;
        Ok(record)
    }
}

/// One version of a ref, as its history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RefVersion {
    /// Sequence of the ref.
    #[n(0)]
    pub sequence: u64,
    /// The version.
    #[n(1)]
    pub snapshot: SnapshotId,
    /// The version it was made from.
    #[n(2)]
    pub parent: Option<SnapshotId>,
    /// Number of the log record that made it.
    #[n(3)]
    pub log_sequence: u64,
    /// That record's time.
    #[n(4)]
    pub time: Timestamp,
    /// That record's writer.
    #[n(5)]
    pub writer: String,
    /// The chunk with the signature.
    #[n(6)]
    pub envelope: Option<ChunkId>,
    /// The training step it is a checkpoint of.
    #[n(7)]
    pub step: Option<u64>,
}

/// A ref with its history. A removed ref keeps its sequence and loses its history, so that its sequence never goes back.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RefState {
    /// The ref.
    #[n(0)]
    pub name: RefName,
    /// Its sequence now.
    #[n(1)]
    pub sequence: u64,
    /// Its versions, oldest first; empty if the ref is removed.
    #[n(2)]
    pub versions: Vec<RefVersion>,
}

/// The sum of all records up to one: the object `log/commit.state/<sequence>`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LogState {
    /// The repository.
    #[n(0)]
    pub repository: RepositoryId,
    /// Number of the last record it contains; 0 for an empty log.
    #[n(1)]
    pub sequence: u64,
    /// BLAKE3 of that record as stored; `None` for an empty log.
    #[n(2)]
    pub last: Option<Digest>,
    /// Index generation.
    #[n(3)]
    pub index_generation: u64,
    /// All refs, sorted by name.
    #[n(4)]
    pub refs: Vec<RefState>,
    /// All live index segments, in the order they came.
    #[n(5)]
    pub segments: Vec<SegmentRef>,
    /// What boundaries condemned and nobody has swept yet, oldest first.
    #[n(6)]
    pub condemned: Vec<Condemned>,
}

impl LogState {
    /// The state before the first record.
    #[must_use]
    pub const fn empty(repository: RepositoryId) -> Self {
        Self {
            repository,
            sequence: 0,
            last: None,
            index_generation: 0,
            refs: Vec::new(),
            segments: Vec::new(),
            condemned: Vec::new(),
        }
    }

    /// The object's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(&STATE_MAGIC, self)
    }

    /// Reads the state after record `sequence` of `repository`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or if it is another repository's or another number's state.
    pub fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = STATE;
        let state: Self = sealed::open(what, &STATE_MAGIC, bytes, Limits::DEFAULT.log_state_bytes)?;
        if state.sequence != sequence || state.repository != repository {
            return Err(DecodeError::Contradiction {
                what,
                field: "sequence or repository",
                claimed: state.sequence,
                actual: sequence,
            });
        }
        if state.last.is_some() != (sequence > 0) || sequence > SEQUENCE_MAX {
            return Err(DecodeError::Field { what, field: "last record", value: sequence });
        }
        check_sorted(what, state.refs.iter().map(|state| &state.name))?;
        state.refs.iter().try_for_each(|state| check_versions(state, sequence))?;
        gc::check_state(&state)?;
        Ok(state)
    }

    /// The number of the last record in a state of any repository, unless the bytes are damaged.
    #[must_use]
    pub fn sequence_of(bytes: &[u8]) -> Option<u64> {
        let state: Self = sealed::open(STATE, &STATE_MAGIC, bytes, Limits::DEFAULT.log_state_bytes).ok()?;
        Some(state.sequence)
    }

    /// The ref's state, also of a removed one.
    #[must_use]
    pub fn find(&self, name: &RefName) -> Option<&RefState> {
        let at = self.refs.binary_search_by(|state| state.name.cmp(name)).ok()?;
        Some(&self.refs[at])
    }

    /// The newest version of a ref; `None` if there is no such ref or it was removed.
    #[must_use]
    pub fn newest(&self, name: &RefName) -> Option<&RefVersion> {
        self.find(name)?.versions.last()
    }

    /// The version of a ref that is the checkpoint of this step.
    #[must_use]
    pub fn find_step(&self, name: &RefName, step: u64) -> Option<&RefVersion> {
        self.find(name)?.versions.iter().find(|version| version.step == Some(step))
    }

    /// The newest version of a ref that is a checkpoint: the one saved last, whatever its step.
    #[must_use]
    pub fn latest_step(&self, name: &RefName) -> Option<&RefVersion> {
        self.find(name)?.versions.iter().rfind(|version| version.step.is_some())
    }

    /// Whether a pack is condemned and not swept yet.
    #[must_use]
    pub fn is_condemned(&self, pack: PackId) -> bool {
        self.condemned.iter().any(|group| group.packs.binary_search(&pack).is_ok())
    }

    /// The number the next version of a ref gets.
    #[must_use]
    pub fn next_sequence(&self, name: &RefName) -> u64 {
        self.find(name).map_or(1, |state| state.sequence + 1)
    }

    /// Takes in the next record, whose bytes have the digest `digest`.
    ///
    /// # Errors
    /// [`DecodeError`] if the record does not follow this state: its repository, its number, the record it follows, the
    /// index generation its writer had read, what it says a ref was before, a step that the ref has already, or what a
    /// collection of garbage takes away. Nothing is changed then.
    pub fn apply(&mut self, record: &LogRecord, digest: Digest) -> Result<(), DecodeError> {
        let what = RECORD;
        let follows = self.sequence.checked_add(1) == Some(record.sequence) && record.previous == self.last;
        if record.repository != self.repository || !follows {
            return Err(DecodeError::Order { what, index: record.sequence });
        }
        check_changes(&record.refs)?;
        gc::check_follows(self, record)?;
        for change in &record.refs {
            let now = self.find(&change.name);
            let sequence = now.map_or(0, |state| state.sequence);
            let current = now.and_then(|state| state.versions.last()).map(|version| version.snapshot);
            let next = sequence.saturating_add(1);
            if change.sequence != next || change.old != current {
                return Err(DecodeError::Contradiction {
                    what,
                    field: "ref sequence or old version",
                    claimed: change.sequence,
                    actual: next,
                });
            }
            if let Some(step) = change.step
                && self.find_step(&change.name, step).is_some()
            {
                return Err(DecodeError::Field { what, field: "step that the ref has already", value: step });
            }
        }
        for change in &record.refs {
            self.move_ref(record, change);
        }
        gc::apply(self, record);
        self.segments.extend_from_slice(&record.segments);
        self.sequence = record.sequence;
        self.last = Some(digest);
        Ok(())
    }

    fn move_ref(&mut self, record: &LogRecord, change: &RefChange) {
        let at = match self.refs.binary_search_by(|state| state.name.cmp(&change.name)) {
            Ok(at) => at,
            Err(at) => {
                let state = RefState { name: change.name.clone(), sequence: 0, versions: Vec::new() };
                self.refs.insert(at, state);
                at
            }
        };
        let state = &mut self.refs[at];
        state.sequence = change.sequence;
        match change.new {
            None => state.versions.clear(),
            Some(snapshot) => state.versions.push(RefVersion {
                sequence: change.sequence,
                snapshot,
                parent: change.parent,
                log_sequence: record.sequence,
                time: record.time,
                writer: record.writer.clone(),
                envelope: change.envelope,
                step: change.step,
            }),
        }
    }
}

/// Sorted, no ref twice, each change changes something, and a removal has neither parent nor signature nor step.
fn check_changes(changes: &[RefChange]) -> Result<(), DecodeError> {
    let what = RECORD;
    check_sorted(what, changes.iter().map(|change| &change.name))?;
    for (index, change) in (0..).zip(changes) {
        check_sequence(what, change.sequence)?;
        check_step(what, change.step)?;
        let has_more = change.parent.is_some() || change.envelope.is_some() || change.step.is_some();
        if change.new.is_none() && (change.old.is_none() || has_more) {
            return Err(DecodeError::Field { what, field: "removal of a ref", value: index });
        }
    }
    Ok(())
}

/// The versions of a ref count up to the ref's own number, in the order of the records that made them; no step twice.
fn check_versions(state: &RefState, log_sequence: u64) -> Result<(), DecodeError> {
    let what = STATE;
    check_sequence(what, state.sequence)?;
    let mut last = (0, 0);
    let mut steps = BTreeSet::new();
    for (index, version) in (0..).zip(&state.versions) {
        check_step(what, version.step)?;
        if let Some(step) = version.step
            && !steps.insert(step)
        {
            return Err(DecodeError::Field { what, field: "step that stands twice", value: step });
        }
        if version.sequence <= last.0 || version.log_sequence <= last.1 {
            return Err(DecodeError::Order { what, index });
        }
        check_time(what, version.time)?;
        last = (version.sequence, version.log_sequence);
    }
    let (claimed, actual) = (state.sequence, last.0);
    if !state.versions.is_empty() && claimed != actual {
        return Err(DecodeError::Contradiction { what, field: "ref sequence", claimed, actual });
    }
    if last.1 > log_sequence {
        let (claimed, actual) = (log_sequence, last.1);
        return Err(DecodeError::Contradiction { what, field: "newest version", claimed, actual });
    }
    Ok(())
}

pub(crate) fn check_sequence(what: &'static str, sequence: u64) -> Result<(), DecodeError> {
    if (1..=SEQUENCE_MAX).contains(&sequence) {
        Ok(())
    } else {
        Err(DecodeError::Field { what, field: "sequence", value: sequence })
    }
}

fn check_step(what: &'static str, step: Option<u64>) -> Result<(), DecodeError> {
    match step {
        Some(value) if value > SEQUENCE_MAX => Err(DecodeError::Field { what, field: "step", value }),
        _ => Ok(()),
    }
}

pub(crate) fn check_time(what: &'static str, time: Timestamp) -> Result<(), DecodeError> {
    if time.is_valid() { Ok(()) } else { Err(DecodeError::Field { what, field: "time", value: time.nanos.into() }) }
}

/// Rising, none twice.
pub(crate) fn check_sorted<'n, T: Ord + 'n>(
    what: &'static str,
    items: impl Iterator<Item = &'n T>,
) -> Result<(), DecodeError> {
    let mut last: Option<&T> = None;
    for (index, item) in items.enumerate() {
        if last.is_some_and(|last| last >= item) {
            return Err(DecodeError::Order { what, index: index as u64 });
        }
        last = Some(item);
    }
    Ok(())
}

//! What a collection of garbage says in the log.

use minicbor::{Decode, Encode};

use crate::log::{SEQUENCE_MAX, SegmentRef, check_sequence, check_sorted, check_time};
use crate::{DecodeError, Limits, LogRecord, LogState, PackId, RefName, RefState, SegmentId, Timestamp};

const RECORD: &str = "log record";
const STATE: &str = "log state";

/// A step of a collection of garbage.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum GcChange {
    /// Packs are condemned, and a new index generation begins.
    #[n(0)]
    Boundary(#[n(0)] Boundary),
    /// The objects that the boundaries of these generations condemned are gone. Rising.
    #[n(1)]
    Swept(#[n(0)] Vec<u64>),
}

/// The line between two index generations. Who has read the index of an older one can add nothing behind it: what it
/// relies on may have been condemned. Nothing that is condemned ever counts again, so that a collector which deletes it
/// late, or twice, does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Boundary {
    /// The index generation that begins, one more than that before.
    #[n(0)]
    pub generation: u64,
    /// Packs that no live segment lists from here on and that nobody may rely on. Sorted.
    #[n(1)]
    pub condemned: Vec<PackId>,
    /// Live segments that stop being live; what they list and is still needed stands in the record's new segments. Sorted.
    #[n(2)]
    pub dropped: Vec<SegmentId>,
}

/// What one boundary condemned and nobody has swept yet.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Condemned {
    /// The index generation that began then.
    #[n(0)]
    pub generation: u64,
    /// Time of the record. It decides when the objects are deleted, never whether that is safe.
    #[n(1)]
    pub since: Timestamp,
    /// The packs, sorted.
    #[n(2)]
    pub packs: Vec<PackId>,
    /// The segments that were dropped, in the order they came.
    #[n(3)]
    pub segments: Vec<SegmentRef>,
}

/// Versions of one ref that the log forgets.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Forgotten {
    /// The ref.
    #[n(0)]
    pub name: RefName,
    /// Sequences of the versions, rising.
    #[n(1)]
    pub versions: Vec<u64>,
}

/// What holds for the record alone: a collection moves no refs, its lists are sorted and bounded, and the segments that a
/// record adds were written in the generation in which they count. So a segment of an older generation that no state lists
/// never will be listed, and can be deleted.
pub(crate) fn check_record(record: &LogRecord) -> Result<(), DecodeError> {
    let what = RECORD;
    let field = |field, value: usize| DecodeError::Field { what, field, value: value as u64 };
    let limits = Limits::DEFAULT;
    let mut generation = record.index_generation;
    match &record.gc {
        None => {}
        Some(GcChange::Boundary(boundary)) => {
            bound(what, "condemned packs", boundary.condemned.len(), limits.condemned_packs)?;
            bound(what, "dropped segments", boundary.dropped.len(), limits.dropped_segments)?;
            check_sorted(what, boundary.condemned.iter())?;
            check_sorted(what, boundary.dropped.iter())?;
            let actual = generation.saturating_add(1);
            generation = boundary.generation;
            if generation != actual || generation > SEQUENCE_MAX {
                let (field, claimed) = ("new index generation", generation);
                return Err(DecodeError::Contradiction { what, field, claimed, actual });
            }
        }
        Some(GcChange::Swept(generations)) => {
            bound(what, "swept generations", generations.len(), limits.condemned_generations)?;
            check_sorted(what, generations.iter())?;
            if generations.is_empty() || !record.segments.is_empty() {
                return Err(field("swept generations", generations.len()));
            }
        }
    }
    if let Some(forgotten) = &record.forgotten {
        check_forgotten(forgotten)?;
    }
    if (record.gc.is_some() || record.forgotten.is_some()) && !record.refs.is_empty() {
        return Err(field("moved refs", record.refs.len()));
    }
    match record.segments.iter().find(|segment| segment.generation != generation) {
        Some(SegmentRef { generation: claimed, .. }) => Err(DecodeError::Contradiction {
            what,
            field: "generation of a segment",
            claimed: *claimed,
            actual: generation,
        }),
        None => Ok(()),
    }
}

fn check_forgotten(forgotten: &[Forgotten]) -> Result<(), DecodeError> {
    let (what, limits) = (RECORD, Limits::DEFAULT);
    bound(what, "forgotten versions", forgotten.iter().map(|one| one.versions.len()).sum(), limits.forgotten_versions)?;
    check_sorted(what, forgotten.iter().map(|one| &one.name))?;
    for one in forgotten {
        check_sorted(what, one.versions.iter())?;
        one.versions.iter().try_for_each(|version| check_sequence(what, *version))?;
    }
    if forgotten.is_empty() || forgotten.iter().any(|one| one.versions.is_empty()) {
        return Err(DecodeError::Field { what, field: "forgotten versions", value: 0 });
    }
    Ok(())
}

/// Whether the state has what a record takes away: the segments that are dropped, none twice; the generations that are
/// swept; versions that are neither their ref's newest nor its latest checkpoint. And whether the writer knew the index.
pub(crate) fn check_follows(state: &LogState, record: &LogRecord) -> Result<(), DecodeError> {
    let what = RECORD;
    check_record(record)?;
    if record.index_generation != state.index_generation {
        let (field, claimed, actual) = ("index generation", record.index_generation, state.index_generation);
        return Err(DecodeError::Contradiction { what, field, claimed, actual });
    }
    for one in record.forgotten.iter().flatten() {
        check_forgettable(state.find(&one.name), one)?;
    }
    match &record.gc {
        None => Ok(()),
        Some(GcChange::Boundary(boundary)) => check_boundary(state, boundary),
        Some(GcChange::Swept(generations)) => {
            let is_known = |generation: &u64| state.condemned.iter().any(|group| group.generation == *generation);
            match generations.iter().find(|generation| !is_known(generation)) {
                Some(value) => Err(DecodeError::Field { what, field: "swept generation", value: *value }),
                None => Ok(()),
            }
        }
    }
}

fn check_boundary(state: &LogState, boundary: &Boundary) -> Result<(), DecodeError> {
    let what = RECORD;
    let is_dropped = |segment: &&SegmentRef| boundary.dropped.binary_search(&segment.id).is_ok();
    let (claimed, actual) = (boundary.dropped.len() as u64, state.segments.iter().filter(is_dropped).count() as u64);
    if claimed != actual {
        return Err(DecodeError::Contradiction { what, field: "dropped segments", claimed, actual });
    }
    let twice = boundary.condemned.iter().filter(|pack| state.is_condemned(**pack)).count();
    if twice > 0 {
        return Err(DecodeError::Field { what, field: "number of packs condemned twice", value: twice as u64 });
    }
    bound(what, "condemned generations", state.condemned.len() + 1, Limits::DEFAULT.condemned_generations)
}

fn check_forgettable(state: Option<&RefState>, forgotten: &Forgotten) -> Result<(), DecodeError> {
    let versions = state.map(|state| state.versions.as_slice()).unwrap_or_default();
    let newest = versions.last().map(|version| version.sequence);
    let latest = versions.iter().rfind(|version| version.step.is_some()).map(|version| version.sequence);
    for sequence in &forgotten.versions {
        let is_there = versions.iter().any(|version| version.sequence == *sequence);
        if !is_there || newest == Some(*sequence) || latest == Some(*sequence) {
            return Err(DecodeError::Field { what: RECORD, field: "forgotten version", value: *sequence });
        }
    }
    Ok(())
}

/// Takes a record in that [`check_follows`] has let through; its new segments are added by the caller.
pub(crate) fn apply(state: &mut LogState, record: &LogRecord) {
    for one in record.forgotten.iter().flatten() {
        if let Ok(at) = state.refs.binary_search_by(|known| known.name.cmp(&one.name)) {
            state.refs[at].versions.retain(|version| one.versions.binary_search(&version.sequence).is_err());
        }
    }
    match &record.gc {
        None => {}
        Some(GcChange::Boundary(boundary)) => {
            let is_dropped = |segment: &SegmentRef| boundary.dropped.binary_search(&segment.id).is_ok();
            let (dropped, kept) = std::mem::take(&mut state.segments).into_iter().partition(is_dropped);
            state.segments = kept;
            state.index_generation = boundary.generation;
            let (generation, packs) = (boundary.generation, boundary.condemned.clone());
            let group = Condemned { generation, since: record.time, packs, segments: dropped };
            if !group.packs.is_empty() || !group.segments.is_empty() {
                state.condemned.push(group);
            }
        }
        Some(GcChange::Swept(generations)) => {
            state.condemned.retain(|group| generations.binary_search(&group.generation).is_err());
        }
    }
}

/// The groups of a state: rising, none of the future, none empty; and no live segment of the future.
pub(crate) fn check_state(state: &LogState) -> Result<(), DecodeError> {
    let (what, limits) = (STATE, Limits::DEFAULT);
    bound(what, "condemned generations", state.condemned.len(), limits.condemned_generations)?;
    check_sorted(what, state.condemned.iter().map(|group| &group.generation))?;
    for group in &state.condemned {
        bound(what, "condemned packs", group.packs.len(), limits.condemned_packs)?;
        bound(what, "dropped segments", group.segments.len(), limits.dropped_segments)?;
        check_sorted(what, group.packs.iter())?;
        check_time(what, group.since)?;
        if group.packs.is_empty() && group.segments.is_empty() {
            return Err(DecodeError::Field { what, field: "condemned packs", value: 0 });
        }
    }
    let generations = state.condemned.iter().map(|group| group.generation);
    let newest = generations.chain(state.segments.iter().map(|segment| segment.generation)).max().unwrap_or(0);
    if newest > state.index_generation || state.index_generation > SEQUENCE_MAX {
        let (claimed, actual) = (state.index_generation, newest);
        return Err(DecodeError::Contradiction { what, field: "index generation", claimed, actual });
    }
    Ok(())
}

fn bound(what: &'static str, field: &'static str, count: usize, limit: u32) -> Result<(), DecodeError> {
    let value = count as u64;
    if value > limit.into() { Err(DecodeError::Field { what, field, value }) } else { Ok(()) }
}

//! What a record must say to follow a state, and what the state is then.

use std::collections::BTreeMap;

use forebay_format::{
    Boundary, Digest, Forgotten, GcChange, LogRecord, LogState, PackId, RefChange, RefName, RefVersion, RepositoryId,
    SegmentId, SegmentRef, SnapshotId,
};
use proptest::prelude::*;

use crate::bodies::REPOSITORY;
use crate::samples::{boundary, record, removal, segment_ref, state, swept};
use crate::strategies::Step;

#[test]
fn a_record_must_follow_the_state() {
    let before = state(1);
    let refused = |change: fn(&mut LogRecord)| {
        let mut record = removal();
        change(&mut record);
        let mut after = before.clone();
        assert!(after.apply(&record, Digest::of(b"2")).is_err(), "{record:?}");
        assert_eq!(after, before, "a refused record changes nothing");
    };
    refused(|record| record.sequence = 3);
    refused(|record| record.sequence = 1);
    refused(|record| record.sequence = 0);
    refused(|record| record.previous = None);
    refused(|record| record.previous = Some(Digest::of(b"other")));
    refused(|record| record.repository = RepositoryId::from_bytes([2; 16]));
    // The index generation its writer had read.
    refused(|record| record.index_generation = 1);
    refused(|record| record.segments = vec![segment_ref(4, 1)]);
    // The ref's number: too low, too high, far away.
    refused(|record| record.refs[0].sequence = 1);
    refused(|record| record.refs[0].sequence = 3);
    refused(|record| record.refs[0].sequence = u64::MAX);
    // What the ref was before.
    refused(|record| record.refs[0].old = Some(SnapshotId::of(b"other")));
    refused(|record| record.refs[1].old = None);
    // A good change does not carry a bad one along.
    refused(|record| record.refs[1].old = Some(SnapshotId::of(b"1")));
    // The same ref twice, in both orders.
    refused(|record| record.refs[1] = record.refs[0].clone());
    refused(|record| record.refs.reverse());
    // Removing what is not there.
    refused(|record| {
        let name = "data/none".parse().unwrap();
        record.refs[0] = RefChange { name, sequence: 1, old: None, ..record.refs[0].clone() };
    });
}

#[test]
fn nothing_follows_the_last_number() {
    let mut last = LogState { sequence: u64::MAX, ..state(1) };
    last.refs[0].sequence = u64::MAX;
    for sequence in [0, 1, u64::MAX] {
        assert!(last.apply(&LogRecord { sequence, ..removal() }, Digest::of(b"2")).is_err());
    }
    last.sequence = 1;
    for sequence in [0, 1, u64::MAX] {
        let mut next = removal();
        next.refs[0].sequence = sequence;
        assert!(last.apply(&next, Digest::of(b"2")).is_err());
    }
}

#[test]
fn a_removed_ref_keeps_its_number_and_loses_its_history() {
    let name: RefName = "data/one".parse().unwrap();
    let mut removed = state(2);
    assert!(removed.newest(&name).is_none());
    let kept = removed.find(&name).unwrap();
    assert_eq!((kept.sequence, kept.versions.as_slice()), (2, &[] as &[RefVersion]));
    let again = |sequence| LogRecord {
        sequence: 3,
        previous: removed.last,
        refs: vec![RefChange {
            name: name.clone(),
            sequence,
            old: None,
            new: Some(SnapshotId::of(b"again")),
            parent: None,
            envelope: None,
            step: Some(1_200),
        }],
        ..removal()
    };
    for bad in [1, 2, 4] {
        assert!(removed.clone().apply(&again(bad), Digest::of(b"3")).is_err(), "number {bad}");
    }
    let record = again(3);
    removed.apply(&record, Digest::of(b"3")).unwrap();
    let newest = removed.newest(&name).unwrap();
    assert_eq!((newest.sequence, newest.log_sequence, newest.snapshot), (3, 3, SnapshotId::of(b"again")));
    assert_eq!(removed.find(&name).unwrap().versions.len(), 1);
}

#[test]
fn steps_find_versions_and_no_step_comes_twice() {
    let name: RefName = "data/two".parse().unwrap();
    let mut state = state(2);
    let steps = |state: &LogState| {
        let found = state.find(&name).unwrap();
        found.versions.iter().map(|version| version.step).collect::<Vec<_>>()
    };
    assert_eq!(steps(&state), [Some(1_200), Some(0)]);
    assert_eq!(state.find_step(&name, 1_200).unwrap().sequence, 1);
    // The latest is the one saved last, not the one with the highest step.
    assert_eq!(state.latest_step(&name).unwrap().step, Some(0));
    let next = |state: &LogState, step| {
        let (sequence, old) = (state.next_sequence(&name), state.newest(&name).map(|version| version.snapshot));
        let new = Some(SnapshotId::of(&sequence.to_le_bytes()));
        let change = RefChange { name: name.clone(), sequence, old, new, parent: old, envelope: None, step };
        LogRecord { sequence: state.sequence + 1, previous: state.last, refs: vec![change], ..removal() }
    };
    for twice in [0, 1_200] {
        let before = state.clone();
        assert!(state.apply(&next(&before, Some(twice)), Digest::of(b"3")).is_err(), "step {twice} again");
        assert_eq!(state, before);
    }
    let plain = next(&state, None);
    state.apply(&plain, Digest::of(b"3")).unwrap();
    assert_eq!((state.newest(&name).unwrap().step, state.latest_step(&name).unwrap().step), (None, Some(0)));
    let further = next(&state, Some(7));
    state.apply(&further, Digest::of(b"4")).unwrap();
    assert_eq!(state.latest_step(&name).unwrap().sequence, 4);
    let other = "data/one".parse().unwrap();
    assert!(state.find_step(&other, 7).is_none() && state.latest_step(&other).is_none());
}

#[test]
fn the_first_record_follows_the_empty_state_alone() {
    let mut empty = LogState::empty(REPOSITORY);
    assert!(empty.apply(&removal(), Digest::of(b"2")).is_err());
    empty.apply(&record(), Digest::of(&record().encode())).unwrap();
    assert_eq!(empty, state(1));
    assert!(empty.apply(&record(), Digest::of(b"1")).is_err(), "the same record again");
}

/// What the log should say about a ref.
#[derive(Clone, Default)]
struct Model {
    sequence: u64,
    versions: Vec<SnapshotId>,
}

/// Plays steps through records and against a model; every state on the way is written, read and gone on with.
fn log_impl(steps: &[Step]) {
    let mut state = LogState::empty(REPOSITORY);
    let mut model: BTreeMap<RefName, Model> = BTreeMap::new();
    let mut segments: Vec<SegmentRef> = Vec::new();
    let (mut generation, mut groups) = (0, Vec::new());
    for (sequence, step) in (1..).zip(steps) {
        let before = model.clone();
        let mut refs = Vec::new();
        for (name, new) in &step.refs {
            let known = model.entry(name.clone()).or_default();
            let old = known.versions.last().copied();
            if old.is_none() && new.is_none() {
                continue;
            }
            known.sequence += 1;
            match new {
                Some(new) => known.versions.push(*new),
                None => known.versions.clear(),
            }
            let parent = new.and(old);
            refs.push(RefChange {
                name: name.clone(),
                sequence: known.sequence,
                old,
                new: *new,
                parent,
                envelope: None,
                step: None,
            });
        }
        let mut record = LogRecord {
            sequence,
            previous: state.last,
            time: step.time,
            index_generation: generation,
            refs,
            segments: step.segments.clone(),
            ..record()
        };
        if let Some((count, packs)) = &step.boundary {
            // What a step does to refs it does not do in the same record.
            record.refs.clear();
            model = before;
            generation += 1;
            let gone: Vec<SegmentRef> = segments.drain(..(*count).min(segments.len())).collect();
            let mut dropped: Vec<SegmentId> = gone.iter().map(|segment| segment.id).collect();
            dropped.sort_unstable();
            let condemned: Vec<PackId> = packs.iter().copied().collect();
            if !gone.is_empty() || !condemned.is_empty() {
                groups.push((generation, condemned.clone(), gone));
            }
            record.gc = Some(GcChange::Boundary(Boundary { generation, condemned, dropped }));
        }
        record.segments.iter_mut().for_each(|segment| segment.generation = generation);
        segments.extend_from_slice(&record.segments);
        let bytes = record.encode();
        let record = LogRecord::decode(REPOSITORY, sequence, &bytes).expect("what was encoded decodes");
        state.apply(&record, Digest::of(&bytes)).expect("it follows");
        state = LogState::decode(REPOSITORY, sequence, &state.encode()).expect("what was encoded decodes");
    }
    assert_eq!((state.index_generation, &state.segments), (generation, &segments));
    let found: Vec<_> = state.condemned.into_iter().map(|one| (one.generation, one.packs, one.segments)).collect();
    assert_eq!(found, groups);
    state.condemned = Vec::new();
    for (name, known) in model.into_iter().filter(|(_, known)| known.sequence > 0) {
        let found = state.find(&name).expect("a ref that was ever there");
        let versions: Vec<SnapshotId> = found.versions.iter().map(|version| version.snapshot).collect();
        assert_eq!((found.sequence, versions), (known.sequence, known.versions));
        assert_eq!(state.newest(&name), found.versions.last());
    }
}

proptest! {
    #[test]
    fn log_proptest(steps in proptest::collection::vec(crate::strategies::step(), 0..20)) {
        log_impl(&steps);
    }
}

#[test]
fn log_cases() {
    let step = |new: Option<&[u8]>| Step {
        refs: BTreeMap::from([("a".parse().unwrap(), new.map(SnapshotId::of))]),
        segments: Vec::new(),
        time: record().time,
        boundary: None,
    };
    log_impl(&[]);
    log_impl(&[step(None)]);
    log_impl(&[step(Some(b"1")), step(None), step(None), step(Some(b"1")), step(Some(b"1")), step(None)]);
}

#[test]
fn who_has_read_an_older_index_adds_nothing_behind_a_boundary() {
    let after = state(3);
    assert_eq!(after.index_generation, 1);
    let (sequence, name) = (after.sequence + 1, "data/three".parse::<RefName>().unwrap());
    let change = RefChange {
        name,
        sequence: 1,
        old: None,
        new: Some(SnapshotId::of(b"new")),
        parent: None,
        envelope: None,
        step: None,
    };
    let push = |index_generation, generation| LogRecord {
        sequence,
        previous: after.last,
        index_generation,
        refs: vec![change.clone()],
        segments: vec![segment_ref(9, generation)],
        ..record()
    };
    for (index_generation, generation) in [(0, 0), (0, 1), (1, 0), (2, 2), (1, 2)] {
        let mut state = after.clone();
        let refused = state.apply(&push(index_generation, generation), Digest::of(b"4"));
        assert!(refused.is_err() && state == after, "{index_generation} {generation}");
    }
    let mut state = after.clone();
    state.apply(&push(1, 1), Digest::of(b"4")).unwrap();
    // A record without segments must have read the index too: its chunks lie somewhere.
    let bare = LogRecord { segments: Vec::new(), ..push(0, 0) };
    assert!(after.clone().apply(&bare, Digest::of(b"4")).is_err());
}

#[test]
fn a_boundary_drops_condemns_and_forgets_what_is_there() {
    let before = state(2);
    let refused = |change: fn(&mut LogRecord, &mut Boundary)| {
        let mut record = boundary();
        let Some(GcChange::Boundary(mut line)) = record.gc.take() else { unreachable!("a boundary") };
        change(&mut record, &mut line);
        record.gc = record.gc.take().or(Some(GcChange::Boundary(line)));
        let mut after = before.clone();
        assert!(after.apply(&record, Digest::of(b"3")).is_err(), "{record:?}");
        assert_eq!(after, before, "a refused record changes nothing");
    };
    let forget = |versions: &[u64]| {
        let name = "data/two".parse().unwrap();
        Some(vec![Forgotten { name, versions: versions.to_vec() }])
    };
    refused(|_, line| line.generation = 2);
    refused(|_, line| line.generation = 0);
    refused(|_, line| line.dropped = vec![SegmentId::from_bytes([9; 16])]);
    refused(|_, line| line.dropped.push(SegmentId::from_bytes([9; 16])));
    refused(|record, _| record.segments[0].generation = 0);
    refused(|record, _| record.index_generation = 1);
    refused(|record, _| record.gc = Some(GcChange::Swept(vec![1])));
    for bad in [forget(&[2]), forget(&[3]), forget(&[1, 2])] {
        let mut after = before.clone();
        let record = LogRecord { forgotten: bad, ..boundary() };
        assert!(after.apply(&record, Digest::of(b"3")).is_err(), "{record:?}");
        assert_eq!(after, before);
    }
    let mut after = before.clone();
    after.apply(&boundary(), Digest::of(&boundary().encode())).unwrap();
    assert_eq!(after.segments, [segment_ref(1, 1)]);
    let group = &after.condemned[0];
    assert_eq!((group.generation, group.since), (1, boundary().time));
    assert_eq!(group.segments, [segment_ref(3, 0)]);
    assert!(after.is_condemned(PackId::from_bytes([5; 16])) && !after.is_condemned(PackId::from_bytes([6; 16])));
    let versions = &after.find(&"data/two".parse().unwrap()).unwrap().versions;
    assert_eq!(versions.iter().map(|version| version.sequence).collect::<Vec<_>>(), [2]);
    // Nothing is condemned twice.
    let gc = Some(GcChange::Boundary(Boundary { generation: 2, condemned: group.packs.clone(), dropped: Vec::new() }));
    let again = LogRecord { gc, index_generation: 1, segments: Vec::new(), ..swept() };
    assert!(after.clone().apply(&again, Digest::of(b"4")).is_err());
    // What was swept leaves the list, and only what is on it can be swept.
    let unknown = LogRecord { gc: Some(GcChange::Swept(vec![1, 2])), ..swept() };
    assert!(after.clone().apply(&unknown, Digest::of(b"4")).is_err());
    after.apply(&swept(), Digest::of(b"4")).unwrap();
    assert_eq!((after.condemned.len(), after.index_generation), (0, 1));
}

#[test]
fn the_latest_checkpoint_is_never_forgotten() {
    let mut state = state(2);
    let name: RefName = "data/two".parse().unwrap();
    let (sequence, old) = (state.next_sequence(&name), state.newest(&name).map(|version| version.snapshot));
    // A version without a step comes behind the latest checkpoint, which is version 2.
    let new = Some(SnapshotId::of(b"plain"));
    let change = RefChange { name: name.clone(), sequence, old, new, parent: old, envelope: None, step: None };
    let plain = LogRecord { sequence: 3, previous: state.last, refs: vec![change], segments: Vec::new(), ..record() };
    state.apply(&plain, Digest::of(b"3")).unwrap();
    let forget = |versions: &[u64]| LogRecord {
        sequence: 4,
        previous: state.last,
        refs: Vec::new(),
        segments: Vec::new(),
        forgotten: Some(vec![Forgotten { name: name.clone(), versions: versions.to_vec() }]),
        ..record()
    };
    for bad in [&[2][..], &[3], &[1, 2], &[4]] {
        assert!(state.clone().apply(&forget(bad), Digest::of(b"4")).is_err(), "{bad:?}");
    }
    let good = forget(&[1]);
    state.apply(&good, Digest::of(b"4")).unwrap();
    assert_eq!(state.latest_step(&name).unwrap().sequence, 2);
    // Bytes of a state like this one decode: sequences need not follow each other.
    assert!(LogState::decode(REPOSITORY, 4, &state.encode()).is_ok());
}

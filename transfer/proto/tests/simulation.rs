//! The scheduler against seeded sources that delay, lose, lie, fall silent and fail, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use forebay_format::ChunkId;
use forebay_transfer_proto::{Action, MonotonicUs, RunId, Scheduler, SchedulerConfig, Trouble, Wanted};

/// SplitMix64: equal seeds, equal numbers.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Brings everything it has.
    Good,
    /// Lacks every third chunk.
    Gaps,
    /// Says nothing after so many frames.
    Silent(u64),
    /// Every frame is damaged, looked at again or not.
    Liar,
    /// Damaged once, healed when asked to look.
    Heals,
    /// Connections break, every so often, and come back.
    Flaky,
    /// Never answers a connection.
    Dead,
    /// Refuses by budget.
    Poor,
}

const MANNERS: [Manner; 8] = [
    Manner::Good,
    Manner::Gaps,
    Manner::Silent(3),
    Manner::Liar,
    Manner::Heals,
    Manner::Flaky,
    Manner::Dead,
    Manner::Poor,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Frame { run: RunId, id: ChunkId, good: bool },
    Missing { run: RunId, id: ChunkId },
    End { run: RunId },
    Fail { run: RunId, trouble: Trouble },
}

struct World {
    rng: Rng,
    manners: Vec<Manner>,
    events: BTreeMap<(MonotonicUs, u64), Event>,
    order: u64,
    frames: Vec<u64>,
    aborted: BTreeSet<RunId>,
    trace: String,
}

impl World {
    fn at(&mut self, when: MonotonicUs, event: Event) {
        self.order += 1;
        self.events.insert((when, self.order), event);
    }

    /// A source answers a run: its events are laid into the future.
    fn answer(&mut self, now: MonotonicUs, run: RunId, source: usize, ids: &[ChunkId], fresh: bool) {
        let delay = Duration::from_micros(50 + self.rng.below(100_000));
        let mut when = now + delay;
        match self.manners[source] {
            Manner::Dead => return self.at(when, Event::Fail { run, trouble: Trouble::Net }),
            Manner::Poor => return self.at(when, Event::Fail { run, trouble: Trouble::Budget }),
            _ => {}
        }
        for id in ids {
            when = when + Duration::from_micros(1 + self.rng.below(5_000));
            self.frames[source] += 1;
            match self.manners[source] {
                Manner::Gaps if id.as_bytes()[0] % 3 == 0 => self.at(when, Event::Missing { run, id: *id }),
                Manner::Silent(after) if self.frames[source] > after => return,
                Manner::Flaky if self.rng.below(4) == 0 => {
                    return self.at(when, Event::Fail { run, trouble: Trouble::Net });
                }
                Manner::Liar => self.at(when, Event::Frame { run, id: *id, good: false }),
                Manner::Heals => self.at(when, Event::Frame { run, id: *id, good: fresh }),
                _ => self.at(when, Event::Frame { run, id: *id, good: true }),
            }
        }
        self.at(when + Duration::from_micros(1), Event::End { run });
    }
}

struct Outcome {
    got: BTreeSet<ChunkId>,
    lost: BTreeMap<ChunkId, Trouble>,
    took: MonotonicUs,
    trace: String,
}

fn id(number: u64) -> ChunkId {
    ChunkId::of(&number.to_le_bytes())
}

fn run(seed: u64, manners: &[Manner], chunks: u64) -> Outcome {
    let wanted = (0..chunks).map(|number| Wanted { id: id(number), len: 64 << 10 });
    let mut core = Scheduler::new(SchedulerConfig::default(), manners.len(), wanted);
    let mut world = World {
        rng: Rng(seed),
        manners: manners.to_vec(),
        events: BTreeMap::new(),
        order: 0,
        frames: vec![0; manners.len()],
        aborted: BTreeSet::new(),
        trace: String::new(),
    };
    let mut outcome =
        Outcome { got: BTreeSet::new(), lost: BTreeMap::new(), took: MonotonicUs(0), trace: String::new() };
    let mut now = MonotonicUs(0);
    for _step in 0..1_000_000 {
        while let Some(action) = core.poll(now) {
            writeln!(world.trace, "{now} {action:?}").unwrap();
            match action {
                Action::Start { run, source, ids, fresh } => world.answer(now, run, source, &ids, fresh),
                Action::Abort { run } => drop(world.aborted.insert(run)),
                Action::Lost { id, trouble } => assert!(outcome.lost.insert(id, trouble).is_none(), "lost twice"),
            }
        }
        if core.is_done() {
            (outcome.took, outcome.trace) = (now, world.trace);
            return outcome;
        }
        let next = world.events.first_key_value().map(|((when, _), _)| *when);
        let deadline = core.deadline();
        let then = next.into_iter().chain(deadline).min().expect("something is going to happen");
        assert!(then >= now, "time does not go back");
        now = then;
        while let Some(entry) = world.events.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            take_in(&mut core, now, event, &mut outcome.got, &world.aborted);
        }
    }
    panic!("seed {seed}: it never ends with {manners:?}");
}

fn take_in(
    core: &mut Scheduler,
    now: MonotonicUs,
    event: Event,
    got: &mut BTreeSet<ChunkId>,
    aborted: &BTreeSet<RunId>,
) {
    match event {
        Event::Frame { run, id, good: true } => {
            if core.handle_frame(now, run, id) {
                assert!(!aborted.contains(&run), "an aborted run brings nothing");
                assert!(got.insert(id), "brought twice");
            }
        }
        Event::Frame { run, id, good: false } => core.handle_corrupt(now, run, id),
        Event::Missing { run, id } => core.handle_missing(now, run, id),
        Event::End { run } => core.handle_end(run),
        Event::Fail { run, trouble } => core.handle_failure(now, run, trouble),
    }
}

#[test]
fn every_chunk_is_brought_or_lost_and_a_good_source_is_enough() {
    for seed in 0..3_000 {
        let mut rng = Rng(seed ^ 0xf0f0);
        let count = 1 + rng.below(4);
        let manners: Vec<Manner> = (0..count).map(|_| MANNERS[rng.below(8) as usize]).collect();
        let chunks = 1 + rng.below(200);
        let outcome = run(seed, &manners, chunks);
        assert_eq!(outcome.got.len() + outcome.lost.len(), chunks as usize, "seed {seed} {manners:?}");
        assert!(outcome.got.iter().all(|id| !outcome.lost.contains_key(id)), "seed {seed}");
        if manners.iter().any(|manner| matches!(manner, Manner::Good | Manner::Heals)) {
            assert!(outcome.lost.is_empty(), "seed {seed} {manners:?}: {:?}", outcome.lost);
        }
        // One stall at the most for each silent source, and the pauses of failing ones.
        assert!(outcome.took < MonotonicUs(60_000_000), "seed {seed} {manners:?} took {}", outcome.took);
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..50 {
        let trace = || run(seed, &MANNERS, 150).trace;
        assert_eq!(trace(), trace());
    }
}

#[test]
fn what_is_told_says_most() {
    let lost = |manners: &[Manner]| run(1, manners, 3).lost.into_values().next();
    assert_eq!(lost(&[Manner::Dead]), Some(Trouble::Net));
    assert_eq!(lost(&[Manner::Poor, Manner::Dead]), Some(Trouble::Budget));
    assert_eq!(lost(&[Manner::Liar]), Some(Trouble::Corrupt));
    assert_eq!(lost(&[Manner::Silent(0)]), Some(Trouble::Net));
    assert_eq!(lost(&[]), Some(Trouble::NotFound));
}

#[test]
fn a_frame_that_nobody_asked_for_is_not_used() {
    let mut core = Scheduler::new(SchedulerConfig::default(), 1, [Wanted { id: id(1), len: 10 }]);
    let now = MonotonicUs(0);
    let Some(Action::Start { run, .. }) = core.poll(now) else { panic!("it starts") };
    assert!(!core.handle_frame(now, RunId(99), id(1)));
    assert!(core.handle_frame(now, run, id(1)));
    assert!(!core.handle_frame(now, run, id(1)), "twice");
    assert!(core.is_done());
}

#[test]
fn a_slow_source_that_sends_one_run_after_the_other_is_not_silent() {
    let wanted = (0..4).map(|number| Wanted { id: id(number), len: 1 << 20 });
    let mut core = Scheduler::new(SchedulerConfig::default(), 1, wanted);
    let mut runs = Vec::new();
    while let Some(action) = core.poll(MonotonicUs(0)) {
        let Action::Start { run, ids, .. } = action else { panic!("it starts") };
        runs.push((run, ids[0]));
    }
    assert_eq!(runs.len(), 4);
    for (number, (run, id)) in runs[..3].iter().enumerate() {
        let now = MonotonicUs((number as u64 + 1) * 8_000_000);
        assert_eq!(core.poll(now), None, "nothing is taken from a source that brings something");
        assert!(core.handle_frame(now, *run, *id));
        core.handle_end(*run);
    }
    assert_eq!(core.deadline(), Some(MonotonicUs(34_000_000)));
    assert_eq!(core.poll(MonotonicUs(34_000_000)), Some(Action::Abort { run: runs[3].0 }));
}

#[test]
fn a_source_that_brings_what_nobody_asked_for_loses_its_work() {
    for lie in [
        |core: &mut Scheduler, now, run| assert!(!core.handle_frame(now, run, id(9))),
        |core: &mut Scheduler, now, run| core.handle_missing(now, run, id(9)),
        |core: &mut Scheduler, now, run| core.handle_corrupt(now, run, id(9)),
    ] {
        let mut core = Scheduler::new(SchedulerConfig::default(), 2, [Wanted { id: id(1), len: 10 }]);
        let now = MonotonicUs(0);
        let Some(Action::Start { run, source: 0, .. }) = core.poll(now) else { panic!("it starts") };
        lie(&mut core, now, run);
        assert_eq!(core.poll(now), Some(Action::Abort { run }));
        let Some(Action::Start { run: other, source: 1, .. }) = core.poll(now) else { panic!("it goes on") };
        assert!(core.handle_frame(now, other, id(1)) && core.is_done());
    }
}

#[test]
fn a_source_that_drips_is_silent() {
    let mut core = Scheduler::new(SchedulerConfig::default(), 2, [Wanted { id: id(1), len: 10 }]);
    let mut now = MonotonicUs(0);
    let Some(Action::Start { run, source: 0, .. }) = core.poll(now) else { panic!("it starts") };
    while core.poll(now).is_none() {
        now = now + Duration::from_secs(1);
        core.handle_progress(now, run);
        assert!(now < MonotonicUs(200_000_000), "bytes without end are no reason to wait without end");
    }
    assert!(now > MonotonicUs(30_000_000), "a slow source gets its time");
    assert!(core.is_out(0));
}

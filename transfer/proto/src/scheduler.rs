//! Who is asked for what: spreads wanted chunks over sources, in runs.
//!
//! Sources have a rank: the first is asked first, as long as it has room for another run. A run is what one stream
//! carries, about 1 MiB of neighbouring chunks. What a source does not have, or fails to bring, is asked of the next; a
//! source that is silent for longer than the stall time, or that lies, is not asked again. Who answers what it was not
//! asked lies; who brings bytes and nothing whole is silent. One that fails otherwise is asked again after a pause that
//! doubles, a few times.
//!
//! Calls, in any order: the `handle_*` methods take in what happened, [`Scheduler::poll`] says what to do until it says
//! nothing, [`Scheduler::deadline`] when to ask again at the latest. Equal calls give equal answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_format::ChunkId;

use crate::item::Trouble;
use crate::pacer::MonotonicUs;
use crate::request::WANT_IDS_MAX;
use crate::tier::RUN_BYTES;

/// A run that brings bytes and no whole item for so many stall times is as good as silent: 60 s with the default, in
/// which a chunk of 1 MiB comes at 17 KB/s.
const STALLS_WITHOUT_ITEM: u32 = 6;

/// Most sources of one scheduler: one bit each in a word.
const SOURCES_MAX: usize = 64;

/// A chunk to get, with its plain length in bytes, or 0 where that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The chunk.
    pub id: ChunkId,
    /// Its plain length in bytes.
    pub len: u32,
}

/// Which source, by its rank.
pub type SourceNumber = usize;

/// A run: one stream to one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Bounds and patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Most runs at a time at one source.
    pub runs_in_flight_max: u32,
    /// A source that brings nothing for so long is silent.
    pub stall: Duration,
    /// Pause after the first failure; it doubles with each.
    pub pause: Duration,
    /// So many failures in a row, and a source is given up.
    pub failures_max: u32,
}

impl Default for SchedulerConfig {
    /// 16 runs fill a local network; 10 s of silence is the limit of field case B17; five failures last 7.75 s, longer
    /// than a node takes to start again.
    fn default() -> Self {
        Self {
            runs_in_flight_max: 16,
            stall: Duration::from_secs(10),
            pause: Duration::from_millis(250),
            failures_max: 5,
        }
    }
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a stream and ask.
    Start {
        /// The new run.
        run: RunId,
        /// Whom.
        source: SourceNumber,
        /// For what.
        ids: Vec<ChunkId>,
        /// Whether the source must look at its own copies first: an answer was damaged.
        fresh: bool,
    },
    /// Stop a run; whatever still comes of it is not wanted.
    Abort {
        /// Which.
        run: RunId,
    },
    /// No source has it, or none that may be asked.
    Lost {
        /// The chunk.
        id: ChunkId,
        /// The worst that a source said.
        trouble: Trouble,
    },
}

#[derive(Debug, Clone, Copy)]
struct Want {
    len: u32,
    /// Sources that need not be asked (again), one bit each.
    tried: u64,
    fresh: bool,
    trouble: Trouble,
}

#[derive(Debug, Clone)]
struct Run {
    source: SourceNumber,
    ids: BTreeSet<ChunkId>,
    started_at: MonotonicUs,
}

#[derive(Debug, Clone, Copy, Default)]
struct Source {
    runs: u32,
    failures: u32,
    paused_until: Option<MonotonicUs>,
    /// When anything came of any of its runs: on a slow link one run waits for the others.
    heard_at: MonotonicUs,
    /// When the last whole item came.
    item_at: MonotonicUs,
    is_out: bool,
}

impl Source {
    fn has_room(&self, config: &SchedulerConfig, now: MonotonicUs) -> bool {
        !self.is_out && self.paused_until.is_none_or(|until| until <= now) && self.runs < config.runs_in_flight_max
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: SchedulerConfig,
    sources: Vec<Source>,
    wants: BTreeMap<ChunkId, Want>,
    /// Wanted and in no run, in the order of the asker.
    queue: VecDeque<ChunkId>,
    runs: BTreeMap<RunId, Run>,
    next_run: u64,
    lost: VecDeque<(ChunkId, Trouble)>,
    aborts: VecDeque<RunId>,
    /// Something in the queue may have no source left: it has to be looked through even if no source has room.
    may_be_lost: bool,
}

impl Scheduler {
    /// Chunks to get from so many sources; doubles are asked for once.
    ///
    /// # Panics
    /// For more than 64 sources.
    #[must_use]
    pub fn new(config: SchedulerConfig, sources: usize, wanted: impl IntoIterator<Item = Wanted>) -> Self {
        assert!(sources <= SOURCES_MAX, "a client is given a few nodes");
        let mut scheduler = Self {
            config,
            sources: vec![Source::default(); sources],
            wants: BTreeMap::new(),
            queue: VecDeque::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            lost: VecDeque::new(),
            aborts: VecDeque::new(),
            may_be_lost: true,
        };
        for Wanted { id, len } in wanted {
            let want = Want { len, tried: 0, fresh: false, trouble: Trouble::NotFound };
            if scheduler.wants.insert(id, want).is_none() {
                scheduler.queue.push_back(id);
            }
        }
        scheduler
    }

    /// Whether nothing is wanted any more, and every loss has been told.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.wants.is_empty() && self.lost.is_empty()
    }

    /// Whether a source has been given up.
    #[must_use]
    pub fn is_out(&self, source: SourceNumber) -> bool {
        self.sources.get(source).is_none_or(|source| source.is_out)
    }

    /// Something came on a run, and no whole frame yet.
    pub fn handle_progress(&mut self, now: MonotonicUs, run: RunId) {
        if let Some(run) = self.runs.get(&run) {
            self.sources[run.source].heard_at = now;
        }
    }

    /// A frame came. `false`: it is not to be used. Another source brought it, or this run was not asked for it, or for
    /// no second one: then its source lies.
    pub fn handle_frame(&mut self, now: MonotonicUs, run: RunId, id: ChunkId) -> bool {
        let Some(run) = self.runs.get_mut(&run) else { return false };
        let source = &mut self.sources[run.source];
        (source.heard_at, source.item_at) = (now, now);
        if !run.ids.remove(&id) {
            let source = run.source;
            self.give_up(source);
            return false;
        }
        (source.failures, source.paused_until) = (0, None);
        self.wants.remove(&id).is_some()
    }

    /// A frame that [`Self::handle_frame`] would take does not verify. The source is asked once more for it, to look at
    /// its own copy first; one that is wrong again lies, and is not asked for anything any more.
    pub fn handle_corrupt(&mut self, now: MonotonicUs, run: RunId, id: ChunkId) {
        let Some(at) = self.runs.get_mut(&run) else { return };
        let source = at.source;
        (self.sources[source].heard_at, self.sources[source].item_at) = (now, now);
        if !at.ids.remove(&id) {
            return self.give_up(source);
        }
        let Some(want) = self.wants.get_mut(&id) else { return };
        want.trouble = Trouble::Corrupt;
        if want.fresh {
            self.give_up(source);
        } else {
            want.fresh = true;
        }
        self.queue.push_front(id);
    }

    /// A source does not have it.
    pub fn handle_missing(&mut self, now: MonotonicUs, run: RunId, id: ChunkId) {
        let Some(at) = self.runs.get_mut(&run) else { return };
        let source = at.source;
        (self.sources[source].heard_at, self.sources[source].item_at) = (now, now);
        if at.ids.remove(&id) {
            self.requeue(id, source, Trouble::NotFound);
        } else {
            self.give_up(source);
        }
    }

    /// A run is finished. What it did not bring, its source does not have.
    pub fn handle_end(&mut self, run: RunId) {
        let Some(run) = self.take_run(run) else { return };
        run.ids.into_iter().rev().for_each(|id| self.requeue(id, run.source, Trouble::NotFound));
    }

    /// A run failed. After [`Trouble::Net`] and [`Trouble::Busy`] the same source may be asked again later; with any
    /// other trouble it need not be.
    pub fn handle_failure(&mut self, now: MonotonicUs, run: RunId, trouble: Trouble) {
        let Some(run) = self.take_run(run) else { return };
        if !matches!(trouble, Trouble::Net | Trouble::Busy) {
            run.ids.into_iter().rev().for_each(|id| self.requeue(id, run.source, trouble));
            return;
        }
        let source = &mut self.sources[run.source];
        // Several runs of one connection fail together: that is one failure.
        if source.paused_until.is_none_or(|until| until <= now) {
            let pause = self.config.pause.saturating_mul(1 << source.failures.min(16));
            source.failures += 1;
            source.paused_until = Some(now + pause);
        }
        if source.failures >= self.config.failures_max {
            source.is_out = true;
            self.may_be_lost = true;
        }
        for id in run.ids.into_iter().rev() {
            if let Some(want) = self.wants.get_mut(&id) {
                want.trouble = worst(want.trouble, trouble);
                self.queue.push_front(id);
            }
        }
    }

    /// A source lies or cannot be believed for another reason.
    pub fn handle_liar(&mut self, source: SourceNumber) {
        self.give_up(source);
    }

    /// The driver itself did not look for a while: the silence was not the sources'.
    pub fn handle_own_delay(&mut self, now: MonotonicUs) {
        for source in &mut self.sources {
            (source.heard_at, source.item_at) = (now, now);
        }
    }

    /// What to do next; nothing until something happens or the deadline comes.
    pub fn poll(&mut self, now: MonotonicUs) -> Option<Action> {
        self.end_silent_runs(now);
        for source in self.sources.iter_mut().filter(|source| source.paused_until.is_some_and(|until| until <= now)) {
            source.paused_until = None;
        }
        if let Some(run) = self.aborts.pop_front() {
            return Some(Action::Abort { run });
        }
        if let Some((id, trouble)) = self.lost.pop_front() {
            return Some(Action::Lost { id, trouble });
        }
        let has_room = self.sources.iter().any(|source| source.has_room(&self.config, now));
        if !has_room && !self.may_be_lost {
            return None;
        }
        self.may_be_lost = false;
        let mut waiting = VecDeque::new();
        let mut action = None;
        while let Some(id) = self.queue.pop_front() {
            match self.source_for(now, id) {
                Choice::Ask(source) => {
                    action = Some(self.start(now, source, id));
                    break;
                }
                Choice::Wait => waiting.push_back(id),
                Choice::None => {
                    let trouble = self.wants.remove(&id).map_or(Trouble::NotFound, |want| want.trouble);
                    action = Some(Action::Lost { id, trouble });
                    self.may_be_lost = true;
                    break;
                }
            }
            // Nothing has room: those behind would wait as well.
            if waiting.len() > WANT_IDS_MAX {
                break;
            }
        }
        waiting.into_iter().rev().for_each(|id| self.queue.push_front(id));
        action
    }

    /// When [`Self::poll`] may have something new to say although nothing happened.
    #[must_use]
    pub fn deadline(&self) -> Option<MonotonicUs> {
        let stalls = self.runs.values().map(|run| self.silent_from(run));
        let pauses = self.sources.iter().filter(|source| !source.is_out).filter_map(|source| source.paused_until);
        let pauses = pauses.filter(|_| !self.queue.is_empty());
        stalls.chain(pauses).min()
    }

    fn source_for(&self, now: MonotonicUs, id: ChunkId) -> Choice {
        let Some(want) = self.wants.get(&id) else { return Choice::None };
        let mut choice = Choice::None;
        for (number, source) in self.sources.iter().enumerate() {
            if source.is_out || want.tried & (1 << number) != 0 {
                continue;
            }
            if source.has_room(&self.config, now) {
                return Choice::Ask(number);
            }
            choice = Choice::Wait;
        }
        choice
    }

    /// Starts a run with this chunk and its followers in the queue that can go with it.
    fn start(&mut self, now: MonotonicUs, source: SourceNumber, first: ChunkId) -> Action {
        let run = RunId(self.next_run);
        self.next_run += 1;
        let fresh = self.wants[&first].fresh;
        let mut bytes = u64::from(self.wants[&first].len);
        let mut ids = vec![first];
        while ids.len() < WANT_IDS_MAX
            && let Some(next) = self.queue.front()
            && let Some(want) = self.wants.get(next)
            && want.fresh == fresh
            && want.tried & (1 << source) == 0
            && bytes + u64::from(want.len) <= RUN_BYTES
        {
            bytes += u64::from(want.len);
            ids.extend(self.queue.pop_front());
        }
        self.sources[source].runs += 1;
        self.runs.insert(run, Run { source, ids: ids.iter().copied().collect(), started_at: now });
        Action::Start { run, source, ids, fresh }
    }

    fn end_silent_runs(&mut self, now: MonotonicUs) {
        let silent: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| self.silent_from(run) <= now).map(|(id, _)| *id).collect();
        for id in silent {
            if let Some(run) = self.take_run(id) {
                self.aborts.push_back(id);
                run.ids.into_iter().rev().for_each(|id| self.requeue(id, run.source, Trouble::Net));
                self.give_up(run.source);
            }
        }
    }

    /// When its source counts as silent if nothing comes before.
    fn silent_from(&self, run: &Run) -> MonotonicUs {
        let (source, stall) = (&self.sources[run.source], self.config.stall);
        let bytes = run.started_at.max(source.heard_at) + stall;
        bytes.min(run.started_at.max(source.item_at) + stall.saturating_mul(STALLS_WITHOUT_ITEM))
    }

    /// Asks it of another source than this.
    fn requeue(&mut self, id: ChunkId, source: SourceNumber, trouble: Trouble) {
        if let Some(want) = self.wants.get_mut(&id) {
            want.tried |= 1 << source;
            want.fresh = false;
            want.trouble = worst(want.trouble, trouble);
            self.queue.push_front(id);
            self.may_be_lost = true;
        }
    }

    /// Takes everything away from a source.
    fn give_up(&mut self, source: SourceNumber) {
        let Some(state) = self.sources.get_mut(source) else { return };
        state.is_out = true;
        self.may_be_lost = true;
        let runs: Vec<RunId> = self.runs.iter().filter(|(_, run)| run.source == source).map(|(id, _)| *id).collect();
        for id in runs {
            if let Some(run) = self.take_run(id) {
                self.aborts.push_back(id);
                run.ids.into_iter().rev().for_each(|id| self.requeue(id, source, Trouble::Net));
            }
        }
    }

    fn take_run(&mut self, run: RunId) -> Option<Run> {
        let run = self.runs.remove(&run)?;
        self.sources[run.source].runs -= 1;
        Some(run)
    }
}

enum Choice {
    Ask(SourceNumber),
    Wait,
    None,
}

/// What is told when several sources failed: a refusal says more than damage, damage more than silence.
fn worst(one: Trouble, other: Trouble) -> Trouble {
    let rank = |trouble| match trouble {
        Trouble::NotFound => 0,
        Trouble::Busy => 1,
        Trouble::Failed | Trouble::Usage => 2,
        Trouble::Net => 3,
        Trouble::Corrupt => 4,
        Trouble::Auth => 5,
        Trouble::Budget => 6,
    };
    if rank(other) >= rank(one) { other } else { one }
}

//! Collecting garbage: what no version leads to is condemned, and deleted when its time has come.
//!
//! Safety comes from the order of the log alone. A *boundary* record condemns packs and begins a new index generation; it is
//! appended only to the very state that was marked, and behind it nothing counts that was stored on the word of an older
//! index. Clocks decide when condemned packs are deleted, never whether that is right. docs/gc.md has the argument.

mod mark;
mod plan;
mod repack;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_format::{
    Boundary, GcChange, LogRecord, LogState, PackId, RefName, RefState, SegmentId, SegmentRef, Timestamp,
};

use self::mark::{Live, mark};
pub use self::plan::Retention;
use self::plan::{Plan, plan, without};
pub(crate) use self::repack::{FrameRuns, SEGMENT_ROWS, footer_rows, whole_payload};
use self::repack::{Rewritten, copy_pack, rewrite_segments};
use self::survey::{Survey, survey};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::index::IndexError;
use crate::log::LogError;
use crate::origin::OriginError;
use crate::packer::{PackError, Packer, Stored, pack_path, segment_path};
use crate::progress::Progress;
use crate::repository::{OpenError, ReadError, Repository, empty_record};

/// Commits of others that may come between mark and boundary, each time marked too, before the run gives up.
const ATTEMPTS_MAX: u32 = 20;
/// From this attempt on nothing is repacked: so many commits come that the copies would be in vain.
const REPACKS_MAX: u32 = 3;
/// Live bytes that a run copies at most, or a tenth of what is stored if that is more.
const REPACK_BYTES: u64 = 1 << 30;

/// What to collect.
#[derive(Debug, Clone)]
pub struct GcOptions {
    /// Change nothing, and say what would be.
    pub dry_run: bool,
    /// How long what is condemned stays, and how old what no record lists must be: time for readers that know an old index,
    /// and for pushes on their way.
    pub grace: Duration,
    /// Versions that are kept; all, if nothing is set.
    pub retention: Retention,
    /// Condemn also if no ref is left at all.
    pub all: bool,
}

/// What a collection found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Bytes of frames that versions need.
    pub live_bytes: u64,
    /// Bytes of packs condemned by this run, those that were repacked among them.
    pub condemned_bytes: u64,
    /// Number of those packs.
    pub condemned_packs: u64,
    /// Bytes of those that no record ever listed: left behind by pushes that never ended.
    pub orphan_bytes: u64,
    /// Bytes deleted by this run, condemned by this or earlier ones.
    pub deleted_bytes: u64,
    /// Number of packs deleted.
    pub deleted_packs: u64,
    /// Live bytes that were copied out of packs that were mostly dead.
    pub repacked_bytes: u64,
    /// Condemned bytes whose time has not come.
    pub waiting_bytes: u64,
    /// Versions forgotten.
    pub forgotten_versions: u64,
    /// Versions that were marked.
    pub versions: u64,
}

/// A collection failed. Whatever it was, nothing that a version needs is gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GcError {
    /// Something that a version needs cannot be read: it is not known what else it needs.
    #[error("nothing was deleted: what versions need cannot be told")]
    Read(#[from] ReadError),
    /// Chunks that versions need have no place in any segment.
    #[error(
        "nothing was deleted: {chunks} chunks that versions need are in no index segment; `forebay verify` names them"
    )]
    Lost {
        /// How many.
        chunks: u64,
    },
    /// The origin failed.
    #[error("garbage cannot be collected")]
    Origin(#[from] OriginError),
    /// What is alive could not be copied.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store is not fit to be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// No ref is left, and nobody said that everything may go.
    #[error("no ref is left, so that everything would go: say --all if that is meant")]
    NoRefs,
    /// Others commit faster than marking can follow.
    #[error("{attempts} commits came in between; nothing was condemned, try again when it is quieter")]
    Busy {
        /// How often it was tried.
        attempts: u32,
    },
    /// Asked to stop.
    #[error("interrupted; the next collection goes on from there")]
    Interrupted,
}

impl Classify for GcError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read(source) => source.class(),
            Self::Lost { .. } => ErrorClass::Corrupt,
            Self::Origin(source) => source.class(),
            Self::Pack(source) => source.class(),
            Self::Log(source) => source.class(),
            Self::Open(source) => source.class(),
            Self::Index(source) => source.class(),
            Self::NoRefs => ErrorClass::Usage,
            Self::Busy { .. } => ErrorClass::Conflict,
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Read(source) => source.damaged_index(),
            Self::Pack(source) => source.damaged_index(),
            Self::Index(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// Forgets versions that nothing keeps, condemns what no version needs, and deletes what was condemned long enough ago.
///
/// # Errors
/// [`GcError`]; nothing that a version needs is gone then.
pub fn collect(
    repository: &mut Repository,
    options: &GcOptions,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<GcReport, GcError> {
    if !options.dry_run {
        repository.prepare_to_write()?;
    }
    let mut report = GcReport::default();
    let mut run = Run { options, cancel, progress, report: &mut report };
    run.forget(repository)?;
    run.condemn(repository)?;
    run.sweep(repository)?;
    Ok(report)
}

/// Drops the versions of one ref that nothing keeps; returns how many.
///
/// # Errors
/// [`GcError::Log`] if the log cannot be written.
pub fn forget(repository: &mut Repository, name: Option<&RefName>, retention: &Retention) -> Result<u64, GcError> {
    let (time, writer, tool) = stamp(repository);
    let chosen =
        |state: &LogState| retention.forgets(state.refs.iter().filter(|one| name.is_none_or(|name| one.name == *name)));
    if chosen(repository.state()).is_empty() {
        return Ok(0);
    }
    let mut count = 0;
    let appended = repository.append::<Halt>(|state| {
        let forgotten = chosen(state);
        count = forgotten.iter().map(|one| one.versions.len() as u64).sum();
        if forgotten.is_empty() {
            return Err(Halt::Moved);
        }
        Ok(LogRecord { forgotten: Some(forgotten), ..empty_record(state, time, writer.clone(), tool.clone()) })
    });
    match appended {
        Ok(_) => Ok(count),
        Err(Halt::Moved) => Ok(0),
        Err(Halt::Log(error)) => Err(error.into()),
    }
}

/// Why a record was not appended.
enum Halt {
    /// The state is not the one that was looked at.
    Moved,
    Log(LogError),
}

impl From<LogError> for Halt {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// An object that the origin has.
pub(crate) struct Object {
    pub(crate) len: u64,
    written: Timestamp,
}

struct Run<'r> {
    options: &'r GcOptions,
    cancel: &'r Cancel,
    progress: &'r Progress,
    report: &'r mut GcReport,
}

impl Run<'_> {
    fn forget(&mut self, repository: &mut Repository) -> Result<(), GcError> {
        repository.refresh()?;
        self.report.forgotten_versions = if self.options.dry_run {
            let forgotten = self.options.retention.forgets(&repository.state().refs);
            forgotten.iter().map(|one| one.versions.len() as u64).sum()
        } else {
            forget(repository, None, &self.options.retention)?
        };
        Ok(())
    }

    /// Marks, plans, and appends the boundary to the state that was marked; again, if somebody else committed meanwhile.
    fn condemn(&mut self, repository: &mut Repository) -> Result<(), GcError> {
        let mut live = Live::default();
        for attempt in 0..ATTEMPTS_MAX {
            repository.refresh()?;
            let (marked, versions) = (repository.state().sequence, versions(repository.state()));
            let done = self.try_condemn(repository, &mut live, attempt);
            if matches!(done, Err(GcError::Interrupted)) {
                return done.map(|_done| ());
            }
            repository.refresh()?;
            match done {
                Ok(true) => return Ok(()),
                // What has been marked stays marked, unless a version is gone: another collection may delete what it needed.
                Ok(false) if self::versions(repository.state()).is_superset(&versions) => {}
                Ok(false) => live = Live::default(),
                Err(error) if repository.state().sequence == marked => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "the log has moved: looking again");
                    live = Live::default();
                }
            }
        }
        Err(GcError::Busy { attempts: ATTEMPTS_MAX })
    }

    /// One attempt; `false` if the log moved meanwhile.
    fn try_condemn(&mut self, repository: &mut Repository, live: &mut Live, attempt: u32) -> Result<bool, GcError> {
        let mut state = repository.state().clone();
        if self.options.dry_run {
            state = without(&state, &self.options.retention.forgets(&state.refs));
        }
        self.report.versions = state.refs.iter().map(|one| one.versions.len() as u64).sum();
        if self.report.versions == 0 && !state.segments.is_empty() && !self.options.all {
            return Err(GcError::NoRefs);
        }
        let reader = repository.reader()?;
        live.forget_bases();
        mark(&reader, &state, live, self.cancel)?;
        let survey = survey(repository, &state, live)?;
        let stored: u64 = survey.packs.iter().map(|pack| pack.len).sum();
        let room = if attempt < REPACKS_MAX { REPACK_BYTES.max(stored / 10) } else { 0 };
        let plan = plan(&survey.packs, room);
        let orphans = self.orphans(repository, &state, &survey)?;
        self.report.live_bytes = survey.live_bytes();
        if self.options.dry_run {
            self.foretell(&plan, &orphans);
            return Ok(true);
        }
        if plan == Plan::default() && orphans.is_empty() {
            return Ok(true);
        }
        self.boundary(repository, &state, &survey, live, plan, &orphans)
    }

    fn foretell(&mut self, plan: &Plan, orphans: &BTreeMap<PackId, u64>) {
        let orphan_bytes: u64 = orphans.values().sum();
        let packs = plan.dead.iter().chain(&plan.repack);
        self.report.condemned_bytes = packs.map(|pack| pack.len).sum::<u64>() + orphan_bytes;
        self.report.condemned_packs = (plan.dead.len() + plan.repack.len() + orphans.len()) as u64;
        self.report.repacked_bytes = plan.repack.iter().map(|pack| pack.live_bytes).sum();
        self.report.orphan_bytes = orphan_bytes;
    }

    /// Copies what is to be copied, writes segments, appends the boundary. `false`: somebody else committed meanwhile.
    fn boundary(
        &mut self,
        repository: &mut Repository,
        state: &LogState,
        survey: &Survey,
        live: &Live,
        mut plan: Plan,
        orphans: &BTreeMap<PackId, u64>,
    ) -> Result<bool, GcError> {
        let generation = state.index_generation + 1;
        let random = repository.around.seed.stream("gc");
        let copied = self.repack(repository, survey, live, &mut plan, generation, &random)?;
        let packs = plan.dead.iter().chain(&plan.repack);
        let goes: BTreeSet<PackId> = packs.map(|pack| pack.id).collect();
        if self.cancel.is_cancelled() {
            return Err(GcError::Interrupted);
        }
        if !draw_boundary(repository, state, &goes, orphans, &copied, &random)? {
            return Ok(false);
        }
        self.foretell(&plan, orphans);
        Ok(true)
    }

    fn repack(
        &mut self,
        repository: &mut Repository,
        survey: &Survey,
        live: &Live,
        plan: &mut Plan,
        generation: u64,
        random: &crate::rng::Random,
    ) -> Result<Stored, GcError> {
        if plan.repack.is_empty() {
            return Ok(Stored::default());
        }
        let index = repository.index()?;
        let ignore = |_: &crate::index::PendingPack| {};
        let runtime = repository.around.runtime.clone();
        let mut packer = Packer::new(&repository.origin, &index, random, runtime, generation, &ignore);
        let mut copied = Vec::with_capacity(plan.repack.len());
        Progress::add(&self.progress.bytes_total, plan.repack.iter().map(|pack| pack.len).sum());
        for pack in &plan.repack {
            if self.cancel.is_cancelled() {
                return Err(GcError::Interrupted);
            }
            let Some(number) = survey.number(pack.id) else { continue };
            if copy_pack(repository, pack, number, live, &mut packer)? {
                copied.push(*pack);
            }
            Progress::add(&self.progress.bytes, pack.len);
        }
        plan.repack = copied;
        Ok(packer.finish()?)
    }

    /// Packs that no segment lists and no boundary has condemned, older than the grace: whoever still means to list them is
    /// told by the boundary.
    fn orphans(
        &self,
        repository: &Repository,
        state: &LogState,
        survey: &Survey,
    ) -> Result<BTreeMap<PackId, u64>, GcError> {
        let before = self.grace_before(repository.around.clock.now());
        let packs = objects(repository, "pack", ".pack")?;
        let is_orphan = |id: &PackId, object: &Object| {
            survey.number(*id).is_none() && !state.is_condemned(*id) && object.written.as_nanos() <= before
        };
        let orphans = packs.into_iter().filter_map(|(name, object)| Some((name.parse::<PackId>().ok()?, object)));
        Ok(orphans.filter(|(id, object)| is_orphan(id, object)).map(|(id, object)| (id, object.len)).collect())
    }

    /// Nanoseconds since 1970; what is older has had its grace.
    fn grace_before(&self, now: Timestamp) -> i128 {
        now.as_nanos() - i128::try_from(self.options.grace.as_nanos()).unwrap_or(i128::MAX)
    }

    /// Deletes what was condemned before the grace: packs, then segments, then the word that they are gone.
    fn sweep(&mut self, repository: &mut Repository) -> Result<(), GcError> {
        let state = repository.state().clone();
        let before = self.grace_before(repository.around.clock.now());
        let (due, waiting): (Vec<_>, Vec<_>) =
            state.condemned.iter().partition(|group| group.since.as_nanos() <= before);
        let packs = objects(repository, "pack", ".pack")?;
        let len = |id: &PackId| packs.get(&id.to_hex()).map(|object| object.len);
        self.report.waiting_bytes = waiting.iter().flat_map(|group| &group.packs).filter_map(len).sum();
        if self.options.dry_run {
            self.report.deleted_bytes = due.iter().flat_map(|group| &group.packs).filter_map(len).sum();
            return Ok(());
        }
        for group in &due {
            for pack in &group.packs {
                if self.cancel.is_cancelled() {
                    return Err(GcError::Interrupted);
                }
                delete(repository, &pack_path(*pack))?;
                if let Some(len) = len(pack) {
                    self.report.deleted_bytes += len;
                    self.report.deleted_packs += 1;
                }
            }
            for segment in &group.segments {
                delete(repository, &segment_path(segment.generation, segment.id))?;
            }
        }
        self.sweep_segments(repository, &state, before)?;
        let generations: Vec<u64> = due.iter().map(|group| group.generation).collect();
        self.say_swept(repository, &generations)
    }

    /// Segments of older generations that no state lists never will be listed.
    fn sweep_segments(&self, repository: &Repository, state: &LogState, before: i128) -> Result<(), GcError> {
        let listed = state.segments.iter().chain(state.condemned.iter().flat_map(|group| &group.segments));
        let listed: BTreeSet<SegmentId> = listed.map(|segment| segment.id).collect();
        for (path, _, written) in repository.around.runtime.block_on(repository.origin.list_aged("index"))? {
            let mut parts = path.rsplit('/');
            let id = parts.next().and_then(|name| name.strip_suffix(".seg")?.parse::<SegmentId>().ok());
            let generation = parts.next().and_then(|name| name.parse::<u64>().ok());
            let Some((id, generation)) = id.zip(generation) else { continue };
            if generation < state.index_generation && !listed.contains(&id) && written.as_nanos() <= before {
                delete(repository, &path)?;
            }
        }
        Ok(())
    }

    fn say_swept(&self, repository: &mut Repository, generations: &[u64]) -> Result<(), GcError> {
        let (time, writer, tool) = stamp(repository);
        let appended = repository.append::<Halt>(|state| {
            // Another collection may have said so already.
            let known = |generation: &u64| state.condemned.iter().any(|group| group.generation == *generation);
            let left: Vec<u64> = generations.iter().copied().filter(known).collect();
            if left.is_empty() {
                return Err(Halt::Moved);
            }
            let gc = Some(GcChange::Swept(left));
            Ok(LogRecord { gc, ..empty_record(state, time, writer.clone(), tool.clone()) })
        });
        match appended {
            Ok(_) | Err(Halt::Moved) => Ok(()),
            Err(Halt::Log(error)) => Err(error.into()),
        }
    }
}

/// Condemns packs: those that go leave all segments, what was copied out of them takes their place, and orphans were in no
/// segment. The boundary is appended to this very state; `false` if somebody else committed meanwhile, who may need what
/// would be condemned.
pub(crate) fn draw_boundary(
    repository: &mut Repository,
    state: &LogState,
    goes: &BTreeSet<PackId>,
    orphans: &BTreeMap<PackId, u64>,
    copied: &Stored,
    random: &crate::rng::Random,
) -> Result<bool, GcError> {
    let generation = state.index_generation + 1;
    let condemned: BTreeSet<PackId> = goes.iter().chain(orphans.keys()).copied().collect();
    let Rewritten { dropped, mut segments, .. } =
        rewrite_segments(repository, state, &|pack| goes.contains(&pack), generation, random)?;
    segments.extend_from_slice(&copied.segments);
    let change = Boundary { generation, condemned: condemned.into_iter().collect(), dropped };
    if !append_boundary(repository, state, &change, &segments)? {
        return Ok(false);
    }
    let index = repository.index()?;
    index.commit_segments(&copied.segments, &copied.packs)?;
    Ok(true)
}

/// Appends a boundary to this very state; `false` if the log has moved on.
pub(crate) fn append_boundary(
    repository: &mut Repository,
    state: &LogState,
    change: &Boundary,
    segments: &[SegmentRef],
) -> Result<bool, GcError> {
    let (time, writer, tool) = stamp(repository);
    let appended = repository.append::<Halt>(|now| {
        if now.sequence != state.sequence {
            return Err(Halt::Moved);
        }
        let gc = Some(GcChange::Boundary(change.clone()));
        Ok(LogRecord { gc, segments: segments.to_vec(), ..empty_record(now, time, writer.clone(), tool.clone()) })
    });
    match appended {
        Ok(_) => Ok(true),
        Err(Halt::Moved) => Ok(false),
        Err(Halt::Log(error)) => Err(error.into()),
    }
}

/// All versions of all refs.
fn versions(state: &LogState) -> BTreeSet<(RefName, u64)> {
    let of =
        |one: &RefState| one.versions.iter().map(|version| (one.name.clone(), version.sequence)).collect::<Vec<_>>();
    state.refs.iter().flat_map(of).collect()
}

fn delete(repository: &Repository, path: &str) -> Result<(), GcError> {
    Ok(repository.around.runtime.block_on(repository.origin.delete(path))?)
}

/// Objects below a prefix, by their names without folders and this ending. What is named otherwise is not ours.
pub(crate) fn objects(
    repository: &Repository,
    prefix: &str,
    ending: &str,
) -> Result<BTreeMap<String, Object>, GcError> {
    let listed = repository.around.runtime.block_on(repository.origin.list_aged(prefix))?;
    let name = |path: &str| Some(path.rsplit('/').next()?.strip_suffix(ending)?.to_owned());
    Ok(listed.into_iter().filter_map(|(path, len, written)| Some((name(&path)?, Object { len, written }))).collect())
}

fn stamp(repository: &Repository) -> (Timestamp, String, String) {
    let around = &repository.around;
    (around.clock.now(), around.writer.clone(), around.tool.clone())
}

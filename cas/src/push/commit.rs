//! The log record that moves the ref.

use std::sync::Arc;

use forebay_format::{LogRecord, LogState, RefChange, RefVersion};

use super::sign::{self, Vouched};
use super::store::{Store, Storing};
use super::{Made, PushError, PushOptions, PushReport, check_expected, existing_step};
use crate::index::LocalIndex;
use crate::log::LogError;
use crate::packer::Stored;
use crate::repository::{Repository, empty_record};

/// Fills in what a record would say, without one.
pub(super) fn rehearse(state: &LogState, options: &PushOptions, report: &mut PushReport) {
    let before = state.newest(&options.name);
    report.sequence = state.next_sequence(&options.name);
    report.parent = options.parent.or_else(|| before.map(|version| version.snapshot));
    if options.step.is_none() && before.is_some_and(|version| version.snapshot == report.snapshot) {
        report.sequence -= 1;
    }
}

/// Appends the log record that moves the ref, unless the ref is there already. A signature that came too late for its
/// place is made again for the next one. Returns all that is stored by then.
pub(super) fn commit(
    repository: &mut Repository,
    index: &Arc<LocalIndex>,
    options: &PushOptions,
    generation: u64,
    made: &Made,
    mut stored: Stored,
    report: &mut PushReport,
) -> Result<Stored, PushError> {
    let mut again;
    let mut vouched = made.vouched.as_ref();
    loop {
        let appended = append(repository, options, generation, made, vouched, &stored, report);
        match appended {
            Ok(()) => return Ok(stored),
            Err(CommitError::Late) => {
                let (newer, more) = sign_again(repository, index, options, made)?;
                stored.packs.extend(more.packs);
                stored.segments.extend(more.segments);
                stored.bytes += more.bytes;
                report.stored_bytes += more.bytes;
                again = newer;
                vouched = again.as_ref();
            }
            Err(CommitError::Unchanged(version)) => {
                fill(report, &version, false);
                return Ok(stored);
            }
            Err(CommitError::Push(error)) => return Err(*error),
        }
    }
}

/// Signs for the place that is free now, and stores that signature with a segment of its own.
fn sign_again(
    repository: &Repository,
    index: &Arc<LocalIndex>,
    options: &PushOptions,
    made: &Made,
) -> Result<(Option<Vouched>, Stored), PushError> {
    let ids = repository.around.seed.stream("packs");
    let store = Store::new(repository, index, &ids, Storing::Late);
    store.run(|store| sign::sign(repository, store, options, made.snapshot, made.totals))
}

fn append(
    repository: &mut Repository,
    options: &PushOptions,
    generation: u64,
    made: &Made,
    vouched: Option<&Vouched>,
    stored: &Stored,
    report: &mut PushReport,
) -> Result<(), CommitError> {
    let snapshot = made.snapshot;
    let (time, writer) = (repository.around.clock.now(), repository.around.writer.clone());
    let tool = repository.around.tool.clone();
    let record = repository.append::<CommitError>(|state| {
        // The fence: what was known to be stored was known in an index that does not count any more.
        if state.index_generation != generation {
            return Err(PushError::Collected.into());
        }
        check_expected(state, options)?;
        let newest = state.newest(&options.name);
        let equal = match options.step {
            // A step that somebody else saved meanwhile.
            Some(step) => {
                existing_step(state, options).map(|version| same_step(options, step, made, version)).transpose()?
            }
            None => newest.filter(|version| version.snapshot == snapshot).cloned(),
        };
        let empty = empty_record(state, time, writer.clone(), tool.clone());
        if let Some(version) = equal {
            if stored.segments.is_empty() {
                return Err(CommitError::Unchanged(Box::new(version)));
            }
            // Only segments, also of an earlier, interrupted push: the ref stays where it is.
            return Ok(LogRecord { segments: stored.segments.clone(), ..empty });
        }
        let (sequence, old) = (state.next_sequence(&options.name), newest.map(|version| version.snapshot));
        if vouched.is_some_and(|vouched| !vouched.is_for(sequence, old)) {
            return Err(CommitError::Late);
        }
        let change = RefChange {
            name: options.name.clone(),
            sequence,
            old,
            new: Some(snapshot),
            parent: options.parent.or(old),
            envelope: vouched.map(|vouched| vouched.envelope),
            step: options.step,
        };
        Ok(LogRecord { refs: vec![change], segments: stored.segments.clone(), ..empty })
    })?;
    let committed = !record.refs.is_empty();
    let state = repository.state();
    let version = match options.step {
        Some(step) => state.find_step(&options.name, step),
        None => state.newest(&options.name),
    };
    fill(report, version.expect("the record's state has this version"), committed);
    Ok(())
}

fn same_step(options: &PushOptions, step: u64, made: &Made, version: RefVersion) -> Result<RefVersion, PushError> {
    if version.snapshot == made.snapshot {
        return Ok(version);
    }
    let (name, found, new) = (options.name.clone(), version.snapshot, made.snapshot);
    Err(PushError::StepTaken { name, step, found, new })
}

fn fill(report: &mut PushReport, version: &RefVersion, committed: bool) {
    report.sequence = version.sequence;
    report.parent = version.parent;
    report.envelope = version.envelope;
    report.committed = committed;
}

/// What keeps a record from being appended.
enum CommitError {
    /// The ref is at this version already.
    Unchanged(Box<RefVersion>),
    /// The signature is for a place that another writer has taken.
    Late,
    /// A real error.
    Push(Box<PushError>),
}

impl From<LogError> for CommitError {
    fn from(source: LogError) -> Self {
        Self::Push(Box::new(source.into()))
    }
}

impl From<PushError> for CommitError {
    fn from(source: PushError) -> Self {
        Self::Push(Box::new(source))
    }
}

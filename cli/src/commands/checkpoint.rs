//! `forebay checkpoint`

mod list;
mod restore;
mod save;
mod show;
mod stage;
mod verify;

use forebay_cas::{ChunkReader, Repository};
use forebay_checkpoint::{Checkpoint, Keys, signature};
use forebay_format::{Snapshot, StepSpec};
use forebay_transfer::NodeId;

use crate::args::checkpoint::CheckpointCommand;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn run(context: &Context<'_>, command: &CheckpointCommand) -> Result<(), Failure> {
    match command {
        CheckpointCommand::Save(args) => save::run(context, args),
        CheckpointCommand::Ls { run } => list::run(context, run),
        CheckpointCommand::Show { checkpoint } => show::run(context, checkpoint),
        CheckpointCommand::Restore(args) => restore::run(context, args),
        CheckpointCommand::Verify { checkpoint, keys } => verify::run(context, checkpoint, keys),
        CheckpointCommand::Stage(args) => stage::run(context, args),
    }
}

/// A checkpoint with what it is read through.
struct Opened {
    repository: Repository,
    reader: ChunkReader,
    checkpoint: Checkpoint,
    snapshot: Snapshot,
}

/// Finds `RUN@STEP` or `RUN@latest`. The one way from reading commands to a repository.
fn open(context: &Context<'_>, text: &str) -> Result<Opened, Failure> {
    let (run, spec) = StepSpec::parse(text).map_err(Failure::usage)?;
    let mut repository = context.repository()?;
    let version = repository.resolve_step(&run, spec)?;
    let checkpoint = Checkpoint::of(repository.state(), &run, &version).expect("a version found by its step has one");
    let reader = repository.reader()?;
    let snapshot = reader.snapshot(version.snapshot)?;
    Ok(Opened { repository, reader, checkpoint, snapshot })
}

impl Opened {
    /// Who signed it, as `keys` ask.
    fn signer(&self, keys: &Keys) -> Result<Option<NodeId>, Failure> {
        Ok(signature::check(&self.reader, &self.checkpoint, self.snapshot.root.totals, keys)?)
    }

    /// `RUN@STEP`
    fn name(&self) -> String {
        format!("{}@{}", self.checkpoint.run, self.checkpoint.step)
    }
}

/// A signature in a sentence, and its word in JSON. Whether it was asked for says what it proves.
fn signed(signer: Option<NodeId>, required: bool) -> (String, &'static str) {
    match signer {
        Some(key) if required => (format!("signed by {key}, as required"), "verified"),
        Some(key) => (format!("signed by {key}, who was not checked"), "unchecked"),
        None => ("not signed".to_owned(), "none"),
    }
}

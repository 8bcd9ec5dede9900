//! `forebay checkpoint`

mod list;
mod prune;
mod restore;
mod save;
mod show;
mod stage;
mod verify;

use forebay_cas::{ChunkReader, ErrorClass};
use forebay_checkpoint::{Checkpoint, Keys, signature};
use forebay_format::Snapshot;
use forebay_transfer::NodeId;

use crate::args::checkpoint::CheckpointCommand;
use crate::args::node::TransferArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;

pub(crate) fn run(context: &Context<'_>, command: &CheckpointCommand) -> Result<(), Failure> {
    match command {
        CheckpointCommand::Save(args) => save::run(context, args),
        CheckpointCommand::Ls { run } => list::run(context, run),
        CheckpointCommand::Show { checkpoint } => show::run(context, checkpoint),
        CheckpointCommand::Restore(args) => restore::run(context, args),
        CheckpointCommand::Verify { checkpoint, keys } => verify::run(context, checkpoint, keys),
        CheckpointCommand::Prune(args) => prune::run(context, args),
        CheckpointCommand::Stage(args) => stage::run(context, args),
    }
}

/// A checkpoint with what it is read through.
struct Opened {
    reader: ChunkReader,
    checkpoint: Checkpoint,
    snapshot: Snapshot,
}

/// Finds `RUN@STEP` or `RUN@latest`, in the repository or through nodes.
fn open(context: &Context<'_>, text: &str) -> Result<Opened, Failure> {
    let opened = library::open_step(context, text, &TransferArgs::default())?;
    let version = opened.version;
    let Some(step) = version.step else {
        return Err(Failure::new(ErrorClass::NotFound, format_args!("{text} is no checkpoint")));
    };
    // What was before it is known where the log is read.
    let checkpoint = Checkpoint { repository: opened.repository, run: opened.name, step, version, previous: None };
    let snapshot = opened.reader.snapshot(checkpoint.version.snapshot)?;
    Ok(Opened { reader: opened.reader, checkpoint, snapshot })
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

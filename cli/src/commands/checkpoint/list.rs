//! `forebay checkpoint ls`

use forebay_checkpoint::Checkpoint;
use forebay_format::VersionSpec;
use serde_json::json;

use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;

/// Digits of an id that people see.
const SHORT: usize = 12;

/// Needs the log alone.
pub(super) fn run(context: &Context<'_>, run: &str) -> Result<(), Failure> {
    let run = ref_name(run)?;
    let repository = context.repository()?;
    repository.resolve(&run, &VersionSpec::Newest)?;
    let checkpoints = Checkpoint::all(repository.state(), &run);
    let latest = checkpoints.last().map(|checkpoint| checkpoint.step);
    for checkpoint in &checkpoints {
        let (version, step) = (&checkpoint.version, checkpoint.step);
        let (id, signed) = (version.snapshot.to_hex(), version.envelope.is_some());
        let is_latest = latest == Some(step);
        context.output.line(&format!(
            "{run}@{step}  {}  {}  {}{}",
            &id[..SHORT],
            text::time(version.time),
            if signed { "signed" } else { "unsigned" },
            if is_latest { "  latest" } else { "" },
        ))?;
        context.output.item(
            "checkpoint",
            json!({
                "run": run.as_str(), "step": step, "seq": version.sequence, "snapshot": id,
                "parent": version.parent.map(|parent| parent.to_hex()), "signed": signed, "latest": is_latest,
                "time": text::time_json(version.time), "writer": version.writer,
            }),
        )?;
    }
    context.output.result(json!({ "run": run.as_str(), "checkpoints": checkpoints.len(), "latest": latest }))?;
    context.output.flush()
}

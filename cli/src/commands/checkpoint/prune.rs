//! `forebay checkpoint prune`

use forebay_cas::gc::{Retention, forget};
use forebay_format::VersionSpec;
use serde_json::json;

use crate::args::checkpoint::PruneArgs;
use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;

pub(super) fn run(context: &Context<'_>, args: &PruneArgs) -> Result<(), Failure> {
    let run = ref_name(&args.run)?;
    let mut repository = context.repository()?;
    repository.resolve(&run, &VersionSpec::Newest)?;
    let retention = Retention { keep_last: args.keep_last, keep_since: None, keep_every: args.keep_every };
    let forgotten = forget(&mut repository, Some(&run), &retention)?;
    let kept = repository.state().find(&run).map_or(0, |one| one.versions.len() as u64);
    let (gone, left) = (text::count(forgotten, "checkpoint"), kept);
    context.output.line(&format!("{run}: forgot {gone}, kept {left}; `forebay gc` deletes what they alone needed"))?;
    context.output.result(json!({ "run": run.as_str(), "forgotten": forgotten, "kept": kept }))?;
    context.output.flush()
}

//! `forebay refs`, `forebay log`, `forebay rm`

use forebay_format::VersionSpec;
use serde_json::json;

use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;

/// Digits of an id that people see; enough to name a version.
const SHORT: usize = 12;

pub(crate) fn list(context: &Context<'_>) -> Result<(), Failure> {
    let repository = context.repository()?;
    let mut listed = 0_u64;
    for state in &repository.state().refs {
        let Some(version) = state.versions.last() else { continue };
        listed += 1;
        let id = version.snapshot.to_hex();
        context.output.line(&format!(
            "{}@{}  {}  {}",
            state.name,
            version.sequence,
            &id[..SHORT],
            text::time(version.time)
        ))?;
        context.output.item(
            "ref",
            json!({
                "ref": state.name.as_str(), "seq": version.sequence, "snapshot": id,
                "versions": state.versions.len(), "time": text::time_json(version.time), "writer": version.writer,
            }),
        )?;
    }
    context.output.result(json!({ "refs": listed }))?;
    context.output.flush()
}

pub(crate) fn log(context: &Context<'_>, name: &str) -> Result<(), Failure> {
    let name = ref_name(name)?;
    let repository = context.repository()?;
    repository.resolve(&name, &VersionSpec::Newest)?;
    let versions = repository.state().find(&name).map(|state| state.versions.as_slice()).unwrap_or_default();
    for version in versions.iter().rev() {
        let (id, time) = (version.snapshot.to_hex(), text::time(version.time));
        context.output.line(&format!("{name}@{}  {}  {time}  {}", version.sequence, &id[..SHORT], version.writer))?;
        context.output.item(
            "version",
            json!({
                "ref": name.as_str(), "seq": version.sequence, "snapshot": id,
                "parent": version.parent.map(|parent| parent.to_hex()), "log_seq": version.log_sequence,
                "step": version.step,
                "time": text::time_json(version.time), "writer": version.writer,
            }),
        )?;
    }
    context.output.result(json!({ "ref": name.as_str(), "versions": versions.len() }))?;
    context.output.flush()
}

pub(crate) fn remove(context: &Context<'_>, name: &str) -> Result<(), Failure> {
    let name = ref_name(name)?;
    let mut repository = context.repository()?;
    let removed = repository.remove_ref(&name)?;
    let id = removed.snapshot.to_hex();
    context.output.line(&format!(
        "removed {name} with all its versions; it was at {name}@{} {}",
        removed.sequence,
        &id[..SHORT]
    ))?;
    context.output.result(json!({ "ref": name.as_str(), "seq": removed.sequence, "snapshot": id }))?;
    context.output.flush()
}

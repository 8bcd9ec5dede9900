//! `forebay du`

use forebay_cas::usage::usage;
use serde_json::json;

use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context<'_>, name: Option<&str>) -> Result<(), Failure> {
    let name = name.map(ref_name).transpose()?;
    let mut repository = context.repository()?;
    if let Some(name) = &name {
        repository.resolve(name, &forebay_format::VersionSpec::Newest)?;
    }
    let usage = usage(&mut repository)?;
    let shown = usage.refs.iter().filter(|one| name.as_ref().is_none_or(|name| *name == one.name));
    context.output.line(&format!("{:>12} {:>12} {:>12}  name", "plain", "stored", "shared"))?;
    let (mut plain, mut stored, mut shared) = (0, 0, 0);
    for one in shown {
        plain += one.plain_bytes;
        stored += one.stored_bytes;
        shared += one.shared_bytes;
        let sizes = [one.plain_bytes, one.stored_bytes, one.shared_bytes].map(text::bytes);
        let versions = text::count(one.versions, "version");
        context
            .output
            .line(&format!("{:>12} {:>12} {:>12}  {} ({versions})", sizes[0], sizes[1], sizes[2], one.name))?;
        context.output.item(
            "ref",
            json!({
                "ref": one.name.as_str(), "versions": one.versions, "files": one.files,
                "plain_bytes": one.plain_bytes, "stored_bytes": one.stored_bytes, "shared_bytes": one.shared_bytes,
            }),
        )?;
    }
    // What names share is stored once.
    let stored = if name.is_none() { usage.stored_bytes } else { stored };
    context.output.line(&format!(
        "{:>12} {:>12} {:>12}  in all",
        text::bytes(plain),
        text::bytes(stored),
        text::bytes(shared)
    ))?;
    context.output.result(json!({ "plain_bytes": plain, "stored_bytes": stored, "shared_bytes": shared }))?;
    context.output.flush()
}

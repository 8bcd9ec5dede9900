//! `forebay init`

use forebay_cas::chunker::PROFILES;
use serde_json::json;

use crate::args::InitArgs;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn run(context: &Context<'_>, args: &InitArgs) -> Result<(), Failure> {
    let profile = args.chunk_profile.as_deref().unwrap_or(PROFILES[0].name);
    let repository = context.init(profile)?;
    let (url, config) = (repository.origin().url(), repository.config());
    let chunker = &config.chunker;
    context.output.line(&format!("made a repository at {url}, chunks of {profile} on average"))?;
    context.output.result(json!({
        "repo": url,
        "repository_id": config.id.to_hex(),
        "chunk_profile": profile,
        "chunk_min": chunker.min_bytes,
        "chunk_avg": chunker.avg_bytes,
        "chunk_max": chunker.max_bytes,
        "format": config.format,
    }))?;
    context.output.flush()
}

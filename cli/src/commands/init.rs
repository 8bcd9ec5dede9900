//! `forebay init`

use forebay_cas::chunker::parse_profile;
use serde_json::json;

use crate::args::InitArgs;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn run(context: &Context<'_>, args: &InitArgs) -> Result<(), Failure> {
    let profile = args.chunk_profile.as_str();
    let params = parse_profile(profile).map_err(|error| Failure::usage(format!("{profile} is {error}")))?;
    let repository = context.init(params)?;
    let (url, config) = (repository.origin().url(), repository.config());
    let chunker = &config.chunker;
    context.output.line(&format!("made a repository at {url}, chunks of {profile}"))?;
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

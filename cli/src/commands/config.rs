//! `forebay config show`

use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn show(context: &Context<'_>) -> Result<(), Failure> {
    let mut settings = serde_json::Map::new();
    for (name, value, source) in &context.settings.origins {
        context.output.line(&format!("{name} = {value}  ({source})"))?;
        settings.insert(name.clone(), json!({ "value": value, "source": source }));
    }
    context.output.result(json!({ "settings": settings }))?;
    context.output.flush()
}

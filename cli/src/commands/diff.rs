//! `forebay diff`

use forebay_cas::ReadError;
use forebay_cas::diff::{Change, ChangeKind, diff};
use serde_json::json;

use crate::context::{Context, resolve};
use crate::failure::Failure;
use crate::text;

#[derive(Debug, Default)]
struct Sums {
    added: u64,
    removed: u64,
    modified: u64,
    metadata: u64,
    added_bytes: u64,
    removed_bytes: u64,
}

pub(crate) fn run(context: &Context<'_>, old: &str, new: &str) -> Result<(), Failure> {
    let mut repository = context.repository()?;
    let (_, old) = resolve(&repository, old)?;
    let (_, new) = resolve(&repository, new)?;
    let reader = repository.reader()?;
    let (before, after) = (reader.snapshot(old.snapshot)?, reader.snapshot(new.snapshot)?);
    let mut sums = Sums::default();
    diff::<Stopped>(&reader, &before.root, &after.root, &mut |change| {
        show(context, &change, &mut sums).map_err(Stopped)
    })
    .map_err(|Stopped(failure)| failure)?;
    context.output.line(&format!(
        "{} added, {} removed, {} modified, {} with another mode or time; {} came, {} went",
        sums.added,
        sums.removed,
        sums.modified,
        sums.metadata,
        text::bytes(sums.added_bytes),
        text::bytes(sums.removed_bytes),
    ))?;
    context.output.result(json!({
        "old": old.snapshot.to_hex(), "new": new.snapshot.to_hex(),
        "added": sums.added, "removed": sums.removed, "modified": sums.modified, "metadata": sums.metadata,
        "added_bytes": sums.added_bytes, "removed_bytes": sums.removed_bytes,
    }))?;
    context.output.flush()
}

/// Shows one change. The bytes of a modified file count as gone and come.
fn show(context: &Context<'_>, change: &Change, sums: &mut Sums) -> Result<(), Failure> {
    let (sign, word, count) = match change.kind {
        ChangeKind::Added => ('+', "added", &mut sums.added),
        ChangeKind::Removed => ('-', "removed", &mut sums.removed),
        ChangeKind::Modified => ('M', "modified", &mut sums.modified),
        ChangeKind::Metadata => ('m', "metadata", &mut sums.metadata),
    };
    *count += 1;
    if change.kind != ChangeKind::Metadata {
        sums.added_bytes += change.new_bytes;
        sums.removed_bytes += change.old_bytes;
    }
    let slash = if change.is_dir { "/" } else { "" };
    context.output.line(&format!("{sign} {}{slash}", text::name(&change.path)))?;
    let mut object = json!({
        "change": word, "dir": change.is_dir, "old_bytes": change.old_bytes, "new_bytes": change.new_bytes,
    });
    text::add_path(&mut object, &change.path);
    context.output.item("change", object)
}

/// Carries a failure through the comparison.
struct Stopped(Failure);

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(error.into())
    }
}

//! `forebay push`

use std::collections::BTreeMap;
use std::path::Path;

use forebay_cas::push::{Expect, PushError, PushOptions, PushReport, push};
use forebay_cas::scan::{ScanError, check_path};
use serde_json::{Value, json};

use crate::args::PushArgs;
use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &PushArgs) -> Result<(), Failure> {
    let options = PushOptions {
        paths: vec![args.path.clone()],
        name: ref_name(&args.name)?,
        expect: args.expect.as_deref().map(parse_expect).transpose()?,
        step: None,
        parent: None,
        signer: None,
        labels: args.label.iter().map(|label| parse_label(label)).collect::<Result<BTreeMap<_, _>, _>>()?,
        exclude: args.exclude.clone(),
        allow_changed: args.allow_changed,
        dry_run: args.dry_run,
        patching: args.patch.into(),
        threads: context.settings.values.threads,
    };
    check_source(&args.path)?;
    let mut repository = if args.dry_run { context.repository_or_imagined()? } else { context.repository_or_new()? };
    let meter = context.meter("push");
    let result = push(&mut repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result.map_err(explain)?;
    show(context, args, &report)
}

/// Nothing is made for a path that is not there or cannot be pushed.
pub(super) fn check_source(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::usage("the path to push is empty"));
    }
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_dir() && !meta.is_file() => Err(ScanError::NotFolder { path: path.to_owned() }.into()),
        Ok(_) => Ok(()),
        Err(source) => Ok(check_path(path, &source)?),
    }
}

fn show(context: &Context<'_>, args: &PushArgs, report: &PushReport) -> Result<(), Failure> {
    let seconds = context.elapsed().as_secs_f64();
    let totals = &report.totals;
    let verb = match (report.committed, args.dry_run) {
        (_, true) => "would be",
        (true, false) => "is",
        (false, false) => "is still",
    };
    let lost = [(report.skipped, "skipped"), (report.changed, "changed"), (report.vanished, "vanished")];
    let lost: String =
        lost.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!(", {number} {what}")).collect();
    context.output.line(&format!(
        "{} {verb} {}@{}: {}, {}{lost}; {} of {} chunks new, {} stored, {seconds:.1} s",
        text::name(args.path.as_os_str().as_encoded_bytes()),
        args.name,
        report.sequence,
        text::count(totals.files, "file"),
        text::bytes(totals.bytes),
        report.new_chunks,
        report.chunks,
        text::bytes(report.stored_bytes),
    ))?;
    context.output.line(&format!("snapshot {}", report.snapshot))?;
    context.output.result(json!({
        "snapshot": report.snapshot.to_hex(),
        "ref": args.name,
        "seq": report.sequence,
        "parent": report.parent.map(|parent| parent.to_hex()),
        "committed": report.committed,
        "dry_run": args.dry_run,
        "files": totals.files,
        "dirs": totals.dirs,
        "links": totals.links,
        "bytes": totals.bytes,
        "chunks": report.chunks,
        "new_chunks": report.new_chunks,
        "new_bytes": report.new_bytes,
        "stored_bytes": report.stored_bytes,
        "skipped": report.skipped,
        "changed": report.changed,
        "vanished": report.vanished,
        "seconds": seconds,
    }))?;
    context.output.flush()
}

fn explain(error: PushError) -> Failure {
    let fields = match &error {
        PushError::Changed { changed, vanished } => json!({ "changed": changed, "vanished": vanished }),
        PushError::Conflict { name, expected, found } => {
            json!({ "ref": name.as_str(), "expected": expected, "found": found.map(|id| id.to_hex()) })
        }
        _ => Value::Null,
    };
    Failure::from(error).with_fields(fields)
}

fn parse_expect(text: &str) -> Result<Expect, Failure> {
    if text == "none" {
        return Ok(Expect::Absent);
    }
    let prefix = text.to_ascii_lowercase();
    if (8..=64).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Expect::Prefix(prefix));
    }
    Err(Failure::usage(format_args!("--expect {text:?} is neither `none` nor at least 8 hex digits of a snapshot id")))
}

fn parse_label(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format_args!("--label {text:?} is wrong: write NAME=VALUE"))),
    }
}

//! `forebay fetch`

use forebay_cas::fetch::{FetchError, FetchOptions, FetchReport, fetch};
use serde_json::{Value, json};

use crate::args::FetchArgs;
use crate::context::{Context, resolve};
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &FetchArgs) -> Result<(), Failure> {
    let mut repository = context.repository()?;
    let (_, version) = resolve(&repository, &args.version)?;
    let options = FetchOptions {
        dest: args.dest.clone(),
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        delete: args.delete,
        offline: context.settings.values.offline,
        threads: context.settings.values.threads,
    };
    let meter = context.meter("fetch");
    let result = fetch(&mut repository, version.snapshot, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result.map_err(explain)?;
    let is_folder = repository.origin().folder().is_some();
    show(context, args, &report, is_folder)
}

fn show(context: &Context<'_>, args: &FetchArgs, report: &FetchReport, is_folder: bool) -> Result<(), Failure> {
    let seconds = context.elapsed().as_secs_f64();
    context.output.line(&format!(
        "{}: {}, {}; {} written ({}), {} from the origin, {seconds:.1} s",
        text::name(args.dest.as_os_str().as_encoded_bytes()),
        text::count(report.totals.files, "file"),
        text::bytes(report.totals.bytes),
        text::count(report.files_written, "file"),
        text::bytes(report.bytes_written),
        text::bytes(report.payload_bytes),
    ))?;
    context.output.result(json!({
        "snapshot": report.snapshot.to_hex(),
        "files": report.totals.files,
        "files_written": report.files_written,
        "bytes": report.totals.bytes,
        "bytes_written": report.bytes_written,
        "payload_bytes": report.payload_bytes,
        "wire_bytes": report.wire_bytes,
        "from": {
            "local": report.local_bytes, "cache": 0, "site": 0, "gateway": 0, "origin": report.payload_bytes,
        },
        // A store's client tries again by itself and does not say how much.
        "retried_bytes": is_folder.then_some(0),
        "deleted": report.deleted,
        "seconds": seconds,
    }))?;
    context.output.flush()
}

pub(super) fn explain(error: FetchError) -> Failure {
    let fields = match &error {
        FetchError::Offline { missing_files, missing_bytes, .. } => {
            json!({ "missing_files": missing_files, "missing_bytes": missing_bytes })
        }
        _ => Value::Null,
    };
    Failure::from(error).with_fields(fields)
}

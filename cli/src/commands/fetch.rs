//! `forebay fetch`

use forebay_cas::fetch::{FetchError, FetchOptions, FetchReport, fetch};
use forebay_cas::source::Traffic;
use serde_json::{Value, json};

use crate::args::FetchArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &FetchArgs) -> Result<(), Failure> {
    let opened = library::open(context, &args.version, &args.transfer, false)?;
    let options = FetchOptions {
        dest: args.dest.clone(),
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        delete: args.delete,
        offline: context.settings.values.offline,
        cache: context.settings.values.cache_dir.clone(),
        threads: context.settings.values.threads,
    };
    let meter = context.meter("fetch");
    let result =
        fetch(&opened.reader, context.clock(), opened.version.snapshot, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result.map_err(explain)?;
    show(context, args, &report)
}

fn show(context: &Context<'_>, args: &FetchArgs, report: &FetchReport) -> Result<(), Failure> {
    let seconds = context.elapsed().as_secs_f64();
    let traffic = &report.traffic;
    context.output.line(&format!(
        "{}: {}, {}; {} written ({}), {}, {seconds:.1} s",
        text::name(args.dest.as_os_str().as_encoded_bytes()),
        text::count(report.totals.files, "file"),
        text::bytes(report.totals.bytes),
        text::count(report.files_written, "file"),
        text::bytes(report.bytes_written),
        from(traffic),
    ))?;
    context.output.result(json!({
        "snapshot": report.snapshot.to_hex(),
        "files": report.totals.files,
        "files_written": report.files_written,
        "bytes": report.totals.bytes,
        "bytes_written": report.bytes_written,
        "payload_bytes": report.payload_bytes,
        "wire_bytes": traffic.wire_bytes,
        "requests": traffic.requests,
        "from": {
            "local": report.local_bytes, "cache": traffic.cache_bytes, "site": traffic.site_bytes,
            "gateway": traffic.gateway_bytes, "origin": traffic.origin_bytes,
        },
        "retried_bytes": traffic.retried_bytes,
        "deleted": report.deleted,
        "seconds": seconds,
    }))?;
    context.output.flush()
}

/// Where bytes came from, in words.
pub(super) fn from(traffic: &Traffic) -> String {
    let parts = [
        (traffic.cache_bytes, "cache"),
        (traffic.site_bytes, "site"),
        (traffic.gateway_bytes, "gateway"),
        (traffic.origin_bytes, "origin"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, place)| format!("{} from the {place}", text::bytes(*bytes)))
        .collect();
    if parts.is_empty() { "nothing moved".to_owned() } else { parts.join(", ") }
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

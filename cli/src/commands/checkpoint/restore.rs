//! `forebay checkpoint restore`

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forebay_cas::fetch::{FetchOptions, FetchReport, fetch};
use forebay_checkpoint::tensors;
use forebay_transfer::NodeId;
use serde_json::json;

use super::{Opened, open, signed};
use crate::args::checkpoint::RestoreArgs;
use crate::commands::fetch::{explain, from};
use crate::context::Context;
use crate::failure::Failure;
use crate::{text, trust};

/// Nothing is written before the signature has been accepted.
pub(super) fn run(context: &Context<'_>, args: &RestoreArgs) -> Result<(), Failure> {
    let keys = trust::accepted_keys(args.require_signature.as_deref())?;
    let opened = open(context, &args.checkpoint)?;
    let signer = opened.signer(&keys)?;
    let options = FetchOptions {
        dest: args.dest.clone(),
        include: Vec::new(),
        exclude: Vec::new(),
        delete: false,
        offline: context.settings.values.offline,
        cache: context.settings.values.cache_dir.clone(),
        threads: context.settings.values.threads,
    };
    let meter = context.meter("restore");
    let snapshot = opened.checkpoint.version.snapshot;
    let result = fetch(&opened.reader, context.clock(), snapshot, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result.map_err(explain)?;
    let place = |path: &[u8]| args.dest.join(OsStr::from_bytes(path));
    let tensors = tensors::count_local(&opened.reader, &opened.snapshot.root, place)?;
    show(context, args, &opened, &report, tensors, signer)
}

fn show(
    context: &Context<'_>,
    args: &RestoreArgs,
    opened: &Opened,
    report: &FetchReport,
    tensors: u64,
    signer: Option<NodeId>,
) -> Result<(), Failure> {
    let seconds = context.elapsed().as_secs_f64();
    let (sentence, signature) = signed(signer, args.require_signature.is_some());
    context.output.line(&format!(
        "{} is {}: {}, {}, {}; {}, {sentence}, {seconds:.1} s",
        text::name(args.dest.as_os_str().as_encoded_bytes()),
        opened.name(),
        text::count(report.totals.files, "file"),
        text::count(tensors, "tensor"),
        text::bytes(report.totals.bytes),
        from(&report.traffic),
    ))?;
    context.output.result(json!({
        "run": opened.checkpoint.run.as_str(),
        "step": opened.checkpoint.step,
        "snapshot": report.snapshot.to_hex(),
        "path": {
            "local": report.local_bytes, "site": report.traffic.site_bytes, "gateway": report.traffic.gateway_bytes,
            "origin": report.traffic.origin_bytes,
        },
        "files": report.totals.files,
        "files_written": report.files_written,
        "bytes": report.totals.bytes,
        "tensors": tensors,
        "verified": true,
        "signature": signature,
        "signed_by": signer.map(|key| key.to_string()),
        "seconds": seconds,
    }))?;
    context.output.flush()
}

//! `forebay checkpoint stage`

use std::time::Duration;

use forebay_checkpoint::stage::{CudaSink, HostSink, StageOptions, StageReport, stage};
use serde_json::{Value, json};

use super::{Opened, open, signed};
use crate::args::checkpoint::{Device, StageArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::{text, trust};

pub(super) fn run(context: &Context<'_>, args: &StageArgs) -> Result<(), Failure> {
    match args.device {
        Device::Host => stage_to(context, args, &mut HostSink::new()),
        Device::Cuda(ordinal) => stage_to(context, args, &mut CudaSink::open(ordinal)?),
    }
}

fn stage_to<S: forebay_checkpoint::stage::DeviceSink>(
    context: &Context<'_>,
    args: &StageArgs,
    sink: &mut S,
) -> Result<(), Failure> {
    let keys = trust::accepted_keys(args.require_signature.as_deref())?;
    let opened = open(context, &args.checkpoint)?;
    let signer = opened.signer(&keys)?;
    let options = StageOptions {
        threads: context.settings.values.threads,
        bench: args.bench,
        clock: context.clock(),
        notices: context.output,
    };
    let meter = context.meter("stage");
    let result = stage(sink, &opened.reader, &opened.snapshot.root, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result?;
    let (sentence, signature) = signed(signer, args.require_signature.is_some());
    let mut fields = json!({
        "run": opened.checkpoint.run.as_str(), "step": opened.checkpoint.step,
        "snapshot": opened.checkpoint.version.snapshot.to_hex(),
        "device": report.device, "files": report.files, "bytes": report.bytes, "slab_bytes": report.slab_bytes,
        "locked": report.locked, "verified": true, "signature": signature,
        "signed_by": signer.map(|key| key.to_string()),
        "seconds": context.elapsed().as_secs_f64(),
    });
    show(context, &opened, &report, &sentence)?;
    if args.bench {
        fields["bench"] = bench(context, &report)?;
    }
    context.output.result(fields)?;
    context.output.flush()
}

fn show(context: &Context<'_>, opened: &Opened, report: &StageReport, sentence: &str) -> Result<(), Failure> {
    context.output.line(&format!(
        "{} is on {}, verified there: {}, {}; {} of slabs, {} locked, {sentence}, {:.1} s",
        opened.name(),
        report.device,
        text::count(report.files, "file"),
        text::bytes(report.bytes),
        text::bytes(report.slab_bytes),
        text::bytes(report.locked),
        context.elapsed().as_secs_f64(),
    ))
}

/// The speed of each stage, in decimal gigabytes a second.
fn bench(context: &Context<'_>, report: &StageReport) -> Result<Value, Failure> {
    let stages = [
        ("read_decode_verify", "read, decode, verify (all threads)", report.read),
        ("copy", "copy to the device", report.copy),
        ("pipeline", "both together, as they ran", report.pipeline),
        ("rehash", "hash what landed", report.verify),
        ("plain_copy", "a plain loop of copies", report.plain.unwrap_or_default()),
    ];
    let mut fields = json!({ "allocate_seconds": report.allocate.as_secs_f64() });
    for (name, what, time) in stages {
        let rate = rate(report.bytes, time);
        context.output.line(&format!("{rate:>8.2} GB/s  {what} ({:.3} s)", time.as_secs_f64()))?;
        fields[format!("{name}_gb_per_s")] = json!(rate);
        fields[format!("{name}_seconds")] = json!(time.as_secs_f64());
    }
    context
        .output
        .line(&format!("{:>8.2} s     to have the memory, locked and zero", report.allocate.as_secs_f64()))?;
    Ok(fields)
}

#[expect(clippy::cast_precision_loss, reason = "a speed for people")]
fn rate(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 / 1e9 / time.as_secs_f64() }
}

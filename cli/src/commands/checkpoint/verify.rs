//! `forebay checkpoint verify`

use std::path::Path;

use forebay_cas::ErrorClass;
use forebay_cas::verify::{VerifyOptions, verify};
use serde_json::json;

use super::open;
use crate::context::Context;
use crate::failure::Failure;
use crate::{text, trust};

pub(super) fn run(context: &Context<'_>, checkpoint: &str, keys: &Path) -> Result<(), Failure> {
    let keys = trust::accepted_keys(Some(keys))?;
    let opened = open(context, checkpoint)?;
    let signer = opened.signer(&keys)?.map(|key| key.to_string());
    let options = VerifyOptions {
        version: Some(opened.checkpoint.version.snapshot),
        sample_percent: 100.0,
        threads: context.settings.values.threads,
    };
    let meter = context.meter("verify");
    let result = verify(&mut context.repository()?, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result?;
    let seconds = context.elapsed().as_secs_f64();
    let fields = json!({
        "run": opened.checkpoint.run.as_str(), "step": opened.checkpoint.step,
        "snapshot": opened.checkpoint.version.snapshot.to_hex(), "signed_by": signer,
        "files": opened.snapshot.root.totals.files, "chunks": report.chunks, "bytes": report.bytes,
        "missing": report.missing, "corrupt": report.corrupt, "verified": report.missing + report.corrupt == 0,
        "seconds": seconds,
    });
    let name = opened.name();
    if report.missing + report.corrupt > 0 {
        let message = format!("{name} is damaged: {} missing, {} corrupt", report.missing, report.corrupt);
        return Err(Failure::new(ErrorClass::Corrupt, message).with_fields(fields));
    }
    context.output.line(&format!(
        "{name} is right: signed by {}, {}, {}, {seconds:.1} s",
        signer.unwrap_or_default(),
        text::count(report.chunks, "chunk"),
        text::bytes(report.bytes)
    ))?;
    context.output.result(fields)?;
    context.output.flush()
}

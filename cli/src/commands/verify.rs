//! `forebay verify`

use forebay_cas::ErrorClass;
use forebay_cas::verify::{VerifyOptions, verify};
use serde_json::json;

use crate::args::VerifyArgs;
use crate::context::{Context, resolve};
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &VerifyArgs) -> Result<(), Failure> {
    let mut repository = context.repository()?;
    let version = args.version.as_deref().map(|text| resolve(&repository, text)).transpose()?;
    let options = VerifyOptions {
        version: version.map(|(_, version)| version.snapshot),
        sample_percent: args.sample.unwrap_or(100.0),
        threads: context.settings.values.threads,
    };
    let meter = context.meter("verify");
    let result = verify(&mut repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result?;
    let seconds = context.elapsed().as_secs_f64();
    let fields = json!({
        "chunks": report.chunks, "bytes": report.bytes, "missing": report.missing, "corrupt": report.corrupt,
        "repaired": 0, "quarantined": 0, "seconds": seconds,
    });
    if report.missing + report.corrupt > 0 {
        let what = args.version.as_deref().unwrap_or("the repository");
        let message = format!("{what} is damaged: {} missing, {} corrupt", report.missing, report.corrupt);
        return Err(Failure::new(ErrorClass::Corrupt, message).with_fields(fields));
    }
    let chunks = text::count(report.chunks, "chunk");
    context.output.line(&format!("all right: {chunks}, {}, {seconds:.1} s", text::bytes(report.bytes)))?;
    context.output.result(fields)?;
    context.output.flush()
}

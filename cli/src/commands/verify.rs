//! `forebay verify`

use std::path::Path;

use forebay_cas::push::Donor;
use forebay_cas::repair::{RepairOptions, repair};
use forebay_cas::verify::{VerifyOptions, VerifyReport, verify};
use forebay_cas::{ErrorClass, Repository};
use serde_json::{Value, json};

use crate::args::VerifyArgs;
use crate::context::{Context, resolve};
use crate::failure::Failure;
use crate::{library, text};

pub(crate) fn run(context: &Context<'_>, args: &VerifyArgs) -> Result<(), Failure> {
    let mut repository = context.repository()?;
    let version = args.version.as_deref().map(|text| resolve(&repository, text)).transpose()?;
    let options = VerifyOptions {
        version: version.map(|(_, version)| version.snapshot),
        sample_percent: args.sample.unwrap_or(100.0),
        threads: context.settings.values.threads,
    };
    if args.repair {
        return mend(context, args, &mut repository, options);
    }
    let meter = context.meter("verify");
    let result = verify(&mut repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result?;
    let fields = fields(context, &report, 0, 0);
    if report.missing + report.corrupt > 0 {
        let message = format!(
            "{} is damaged: {} missing, {} corrupt; `forebay verify --repair` brings back what is whole elsewhere",
            what(args),
            report.missing,
            report.corrupt
        );
        return Err(Failure::new(ErrorClass::Corrupt, message).with_fields(fields));
    }
    let chunks = text::count(report.chunks, "chunk");
    let seconds = context.elapsed().as_secs_f64();
    context.output.line(&format!("all right: {chunks}, {}, {seconds:.1} s", text::bytes(report.bytes)))?;
    context.output.result(fields)?;
    context.output.flush()
}

fn mend(
    context: &Context<'_>,
    args: &VerifyArgs,
    repository: &mut Repository,
    verify: VerifyOptions,
) -> Result<(), Failure> {
    let options = RepairOptions { verify, donors: donors(context, args, repository)? };
    let meter = context.meter("repair");
    let result = repair(repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result?;
    let fields = fields(context, &report.found, report.repaired, report.quarantined);
    let quarantined = match report.quarantined {
        0 => String::new(),
        count => format!(", {} replaced and kept under quarantine/", text::count(count, "damaged object")),
    };
    if report.left > 0 {
        let message = format!(
            "{} is still damaged: {} repaired{quarantined}, {} left; name a folder or repository that has it with --from",
            what(args),
            report.repaired,
            report.left
        );
        return Err(Failure::new(ErrorClass::Corrupt, message).with_fields(fields));
    }
    let line = match report.repaired {
        0 => format!("all right: {}", text::count(report.found.chunks, "chunk")),
        repaired => format!("{repaired} repaired{quarantined}"),
    };
    context.output.line(&line)?;
    context.output.result(fields)?;
    context.output.flush()
}

fn donors(context: &Context<'_>, args: &VerifyArgs, repository: &Repository) -> Result<Vec<Donor>, Failure> {
    let mut donors = Vec::new();
    for from in &args.from {
        let path = Path::new(from);
        donors.push(if path.exists() && !path.join("forebay.cbor").exists() {
            Donor::Files(path.to_owned())
        } else {
            Donor::Chunks(context.other_repository(from)?.into_reader()?)
        });
    }
    // What it costs to bring a chunk over a link is known to nobody here: what is at hand comes first.
    let nodes = library::nodes(context)?;
    if !nodes.is_empty() {
        donors.push(Donor::Chunks(library::chunks_of(context, nodes, repository.config().id, "repair")?));
    }
    Ok(donors)
}

fn what(args: &VerifyArgs) -> &str {
    args.version.as_deref().unwrap_or("the repository")
}

fn fields(context: &Context<'_>, report: &VerifyReport, repaired: u64, quarantined: u64) -> Value {
    json!({
        "chunks": report.chunks, "bytes": report.bytes, "missing": report.missing, "corrupt": report.corrupt,
        "repaired": repaired, "quarantined": quarantined, "seconds": context.elapsed().as_secs_f64(),
    })
}

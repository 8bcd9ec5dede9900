//! `forebay gc`

use std::time::Duration;

use forebay_cas::gc::{GcOptions, GcReport, Retention, collect};
use forebay_format::Timestamp;
use jiff::SignedDuration;
use serde_json::json;

use crate::args::GcArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &GcArgs) -> Result<(), Failure> {
    let mut repository = context.repository()?;
    let keep_since =
        args.keep_within.map(|within| Ok::<_, Failure>(before(context.now(), positive(within)?))).transpose()?;
    let options = GcOptions {
        dry_run: args.dry_run,
        grace: positive(args.grace)?,
        retention: Retention { keep_last: args.keep_last, keep_since, keep_every: None },
        all: args.all,
    };
    let meter = context.meter("gc");
    let result = collect(&mut repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    show(context, args, &result?)
}

fn show(context: &Context<'_>, args: &GcArgs, report: &GcReport) -> Result<(), Failure> {
    let would = if args.dry_run { "would be " } else { "" };
    let lines = [
        (
            report.forgotten_versions > 0,
            format!("{} {would}forgotten", text::count(report.forgotten_versions, "version")),
        ),
        (true, format!("{} needed by {}", text::bytes(report.live_bytes), text::count(report.versions, "version"))),
        (
            report.condemned_bytes > 0,
            format!(
                "{} {would}condemned in {}, {} of it left behind by pushes that never ended, {} copied out of it first",
                text::bytes(report.condemned_bytes),
                text::count(report.condemned_packs, "pack"),
                text::bytes(report.orphan_bytes),
                text::bytes(report.repacked_bytes),
            ),
        ),
        (true, format!("{} {would}deleted", text::bytes(report.deleted_bytes))),
        (
            report.waiting_bytes > 0,
            format!("{} condemned and kept until {} have passed", text::bytes(report.waiting_bytes), args.grace),
        ),
    ];
    lines.iter().filter(|(shown, _)| *shown).try_for_each(|(_, line)| context.output.line(line))?;
    context.output.result(json!({
        "live_bytes": report.live_bytes,
        "condemned_bytes": report.condemned_bytes,
        "condemned_packs": report.condemned_packs,
        "orphan_bytes": report.orphan_bytes,
        "deleted_bytes": report.deleted_bytes,
        "deleted_packs": report.deleted_packs,
        "repacked_bytes": report.repacked_bytes,
        "waiting_bytes": report.waiting_bytes,
        "forgotten_versions": report.forgotten_versions,
        "versions": report.versions,
        "dry_run": args.dry_run,
        "seconds": context.elapsed().as_secs_f64(),
    }))?;
    context.output.flush()
}

fn positive(duration: SignedDuration) -> Result<Duration, Failure> {
    Duration::try_from(duration)
        .map_err(|_negative| Failure::usage(format!("{duration} lies in the past: write a time such as 24h")))
}

/// The time that lies so far back; the beginning of all times if that is further.
fn before(now: Timestamp, ago: Duration) -> Timestamp {
    let seconds = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds: now.seconds.saturating_sub(seconds), ..now }
}

//! `forebay checkpoint save`

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_cas::push::{Patching, PushError, PushOptions, PushReport, Signer, push};
use forebay_cas::{ErrorClass, Repository};
use forebay_checkpoint::signature::{self, CheckpointSigner};
use forebay_checkpoint::{Checkpoint, Keys, tensors};
use forebay_format::{SnapshotId, StepSpec};
use forebay_transfer::NodeId;
use serde_json::{Value, json};

use crate::args::checkpoint::SaveArgs;
use crate::commands::{key, push as push_command};
use crate::context::{Context, ref_name};
use crate::failure::Failure;
use crate::text;
use crate::trust::{Trust, TrustList};

pub(super) fn run(context: &Context<'_>, args: &SaveArgs) -> Result<(), Failure> {
    let name = ref_name(&args.run)?;
    args.paths.iter().try_for_each(|path| push_command::check_source(path))?;
    let identity = args.sign.as_deref().map(key::load).transpose()?;
    let signer_id = identity.as_ref().map(forebay_transfer::Identity::node_id);
    if let Some(id) = signer_id
        && TrustList::load()?.find(id) == Some(Trust::Revoked)
    {
        return Err(Failure::new(ErrorClass::Auth, format_args!("{id} is revoked here: sign with another key")));
    }
    let (mut repository, parent) = open(context, args)?;
    let options = PushOptions {
        paths: args.paths.clone(),
        name,
        expect: None,
        step: Some(args.step),
        parent,
        signer: identity.map(|identity| Arc::new(CheckpointSigner(identity)) as Arc<dyn Signer>),
        labels: BTreeMap::new(),
        exclude: Vec::new(),
        allow_changed: false,
        dry_run: false,
        patching: Patching::Local,
        threads: context.settings.values.threads,
    };
    let meter = context.meter("save");
    let result = push(&mut repository, &options, meter.progress(), &context.cancel);
    drop(meter);
    let report = result.map_err(explain)?;
    let saved = look_at(&mut repository, &options, args)?;
    if signer_id.is_some() && signer_id != saved.signer {
        let by = saved.signer.map_or_else(|| "nobody".to_owned(), |id| id.to_string());
        let message =
            format!("{}@{} is there already, equal, and signed by {by}: it is left as it is", args.run, args.step);
        return Err(Failure::new(ErrorClass::Conflict, message));
    }
    show(context, args, &report, &saved)
}

/// The repository, and the version that training went on from.
fn open(context: &Context<'_>, args: &SaveArgs) -> Result<(Repository, Option<SnapshotId>), Failure> {
    let Some(parent) = &args.parent else { return Ok((context.repository_or_new()?, None)) };
    let (run, spec) = StepSpec::parse(parent).map_err(Failure::usage)?;
    let repository = context.repository()?;
    let version = repository.resolve_step(&run, spec)?;
    Ok((repository, Some(version.snapshot)))
}

/// What can be said of a checkpoint that is saved.
struct Saved {
    signer: Option<NodeId>,
    tensors: u64,
}

fn look_at(repository: &mut Repository, options: &PushOptions, args: &SaveArgs) -> Result<Saved, Failure> {
    let version = repository.resolve_step(&options.name, StepSpec::Step(args.step))?;
    let checkpoint =
        Checkpoint::of(repository.state(), &options.name, &version).expect("a version found by its step has one");
    let reader = repository.reader()?;
    let root = reader.snapshot(version.snapshot)?.root;
    let signer = signature::check(&reader, &checkpoint, root.totals, &Keys::default())?;
    let tensors = tensors::count_local(&reader, &root, |path| source(&args.paths, path))?;
    Ok(Saved { signer, tensors })
}

/// Where a file of the checkpoint came from.
fn source(paths: &[PathBuf], relative: &[u8]) -> PathBuf {
    let relative = Path::new(OsStr::from_bytes(relative));
    match paths {
        [folder] if folder.is_dir() => folder.join(relative),
        paths => {
            let named = paths.iter().find_map(|path| Some((path, relative.strip_prefix(path.file_name()?).ok()?)));
            match named {
                // Joining nothing would end a file's path with a slash.
                Some((path, rest)) if rest.as_os_str().is_empty() => path.clone(),
                Some((path, rest)) => path.join(rest),
                None => relative.to_owned(),
            }
        }
    }
}

fn show(context: &Context<'_>, args: &SaveArgs, report: &PushReport, saved: &Saved) -> Result<(), Failure> {
    let seconds = context.elapsed().as_secs_f64();
    let verb = if report.committed { "is saved" } else { "was there already, equal" };
    let signed = saved.signer.map_or_else(|| "not signed".to_owned(), |key| format!("signed by {key}"));
    context.output.line(&format!(
        "{}@{} {verb}: {}, {}, {}; {} new, {} stored, {signed}, {seconds:.1} s",
        args.run,
        args.step,
        text::count(report.totals.files, "file"),
        text::count(saved.tensors, "tensor"),
        text::bytes(report.totals.bytes),
        text::bytes(report.new_bytes),
        text::bytes(report.stored_bytes),
    ))?;
    context.output.line(&format!("snapshot {}", report.snapshot))?;
    context.output.result(json!({
        "snapshot": report.snapshot.to_hex(),
        "run": args.run,
        "step": args.step,
        "seq": report.sequence,
        "parent": report.parent.map(|parent| parent.to_hex()),
        "committed": report.committed,
        "files": report.totals.files,
        "tensors": saved.tensors,
        "bytes": report.totals.bytes,
        "new_bytes": report.new_bytes,
        "stored_bytes": report.stored_bytes,
        // No tensor is stored as a difference yet: each checkpoint stands on its own.
        "anchor": true,
        "delta_tensors": 0,
        "signed_by": saved.signer.map(|key| key.to_string()),
        "seconds": seconds,
    }))?;
    context.output.flush()
}

fn explain(error: PushError) -> Failure {
    let fields = match &error {
        PushError::Changed { changed, vanished } => json!({ "changed": changed, "vanished": vanished }),
        PushError::StepTaken { name, step, found, new } => {
            json!({ "run": name.as_str(), "step": step, "found": found.to_hex(), "snapshot": new.to_hex() })
        }
        _ => Value::Null,
    };
    Failure::from(error).with_fields(fields)
}

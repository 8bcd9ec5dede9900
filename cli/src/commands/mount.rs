//! `forebay mount`

mod detach;
mod log;

use std::sync::Arc;
use std::time::Duration;

use forebay_cas::{ErrorClass, Notices, Warning};
use forebay_format::{Snapshot, SnapshotId};
use forebay_mount::{MountPoint, MountPointError, Server, ServerOptions, Source, Tree, TreeOptions};
use serde_json::{Value, json};

use self::log::Log;
use crate::args::MountArgs;
use crate::args::node::TransferArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;
use crate::text;

/// How often a server looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After a signal, programs that use the mount have this long to finish; shorter than what [`crate::stop`] waits.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(context: &Context<'_>, args: &MountArgs) -> Result<(), Failure> {
    if !args.foreground {
        return detach::start(context, args);
    }
    if args.detached {
        detach::leave_terminal()?;
    }
    let point = MountPoint::prepare(&args.dir)?;
    tell_cleaned(context, &point);
    let opened = open(context, &args.version)?;
    let memory = context.settings.memory_bytes;
    let options =
        TreeOptions { data_bytes: memory / 4, metadata_bytes: memory / 16, read_ahead_bytes: args.read_ahead };
    let totals = opened.snapshot.root.totals;
    let tree = Arc::new(Tree::new(opened.source, opened.snapshot, options));
    let options = ServerOptions { dir: point.dir, name: opened.name.clone(), allow_other: args.allow_other };
    let server = Server::start(tree, &options, Arc::new(Log::new()))?;
    let dir = server.dir().as_os_str().as_encoded_bytes();
    let mut result = json!({
        "snapshot": opened.id.to_hex(),
        "version": opened.name,
        "pid": std::process::id(),
        "files": totals.files,
        "bytes": totals.bytes,
        "seconds": context.elapsed().as_secs_f64(),
    });
    text::add_raw(&mut result, "dir", dir);
    let shown = show(context, result).and_then(|()| if args.detached { detach::leave_parent() } else { Ok(()) });
    if let Err(failure) = shown {
        // Nobody is there to hear that it is mounted.
        server.unmount(true)?;
        return Err(failure);
    }
    serve(context, server)
}

/// What is to be mounted.
struct Opened {
    /// `NAME@7`
    name: String,
    id: SnapshotId,
    snapshot: Snapshot,
    source: Arc<dyn Source>,
}

/// Finds a version and what it is read from.
fn open(context: &Context<'_>, version: &str) -> Result<Opened, Failure> {
    let opened = library::open(context, version, &TransferArgs::default(), true)?;
    let snapshot = opened.reader.snapshot(opened.version.snapshot)?;
    let name = format!("{}@{}", opened.name, opened.version.sequence);
    Ok(Opened { name, id: opened.version.snapshot, snapshot, source: Arc::new(opened.reader) })
}

/// Shows the result as one line, or as JSON.
fn show(context: &Context<'_>, result: Value) -> Result<(), Failure> {
    let number = |name: &str| result[name].as_u64().unwrap_or_default();
    let word = |name: &str| result[name].as_str().unwrap_or_default();
    context.output.line(&format!(
        "{} is mounted at {}: {}, {}; process {}",
        word("version"),
        text::name(word("dir").as_bytes()),
        text::count(number("files"), "file"),
        text::bytes(number("bytes")),
        number("pid"),
    ))?;
    context.output.result(result)?;
    context.output.flush()
}

fn tell_cleaned(context: &Context<'_>, point: &MountPoint) {
    if let Some(mount) = &point.cleaned {
        let dir = text::name(point.dir.as_os_str().as_encoded_bytes());
        let message = format!("took away what a killed server had left at {dir} ({})", mount.name());
        context.output.warn(Warning { kind: "dead-mount", message, path: None });
    }
}

/// Stays until the mount is gone, or takes it away when a signal asks for it.
fn serve(context: &Context<'_>, server: Server) -> Result<(), Failure> {
    while !server.wait(LOOK_EVERY) {
        if !context.cancel.is_cancelled() {
            continue;
        }
        match server.unmount(false) {
            Ok(()) => {}
            Err(MountPointError::Busy { .. }) => server.unmount(true)?,
            // Somebody else has just taken it away.
            Err(_) if server.wait(LOOK_EVERY) => break,
            Err(error) => return Err(error.into()),
        }
        if !server.wait(GRACE) {
            let dir = server.dir().display();
            let message =
                format_args!("{dir} was unmounted while programs had files open there; they fail from now on");
            return Err(Failure::new(ErrorClass::Failed, message));
        }
        break;
    }
    Ok(server.join()?)
}

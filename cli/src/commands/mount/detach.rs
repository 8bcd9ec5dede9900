//! A server of its own for a mount: the program starts itself again, and ends when the mount answers.
//!
//! The server is `forebay --json mount … --foreground --detached`. Its settings come through its environment, where
//! the stores' credentials are too. Its stdout is a pipe to the process that started it, which shows what comes: the
//! result, or the error. Then the server lets go of it and has a log file only.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_cas::{Classify, ErrorClass, Notices, Warning};
use forebay_format::Digest;
use forebay_mount::MountPoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use serde_json::{Map, Value, json};

use super::{show, tell_cleaned};
use crate::args::MountArgs;
use crate::context::Context;
use crate::failure::{Failure, class_named};
use crate::text;

/// How often a start that takes long looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of the log shown when a server died without a word.
const LAST_WORDS: usize = 2000;
/// Longest answer of a server: a line with a path in it.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Starts a server and waits until its mount answers.
pub(super) fn start(context: &Context<'_>, args: &MountArgs) -> Result<(), Failure> {
    let point = MountPoint::prepare(&args.dir)?;
    tell_cleaned(context, &point);
    let log = log_path(context, &point.dir)?;
    let mut child = spawn(context, args, &point.dir, &log)?;
    let answer = listen(context, &mut child);
    match answer {
        Ok(Some(mut result)) => {
            text::add_raw(&mut result, "log", log.as_os_str().as_encoded_bytes());
            result["seconds"] = json!(context.elapsed().as_secs_f64());
            show(context, result)
        }
        Ok(None) => {
            let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let words = last_words(&log);
            let log = log.display();
            Err(Failure::new(
                ErrorClass::Failed,
                format_args!("the server of the mount ended before it answered ({status}); its log is {log}{words}"),
            ))
        }
        Err(failure) => {
            // It ends by itself after an error; after a signal it is told to, and takes its mount away.
            let pid = Pid::from_child(&child);
            let _ended = rustix::process::kill_process(pid, Signal::TERM);
            let _ended = child.wait();
            Err(failure)
        }
    }
}

/// In the server: a session of its own, which no terminal can end.
pub(super) fn leave_terminal() -> Result<(), Failure> {
    rustix::process::setsid()
        .map(|_| ())
        .map_err(|error| Failure::new(ErrorClass::Failed, format_args!("no session of its own can be had: {error}")))
}

/// In the server: the process that started it has heard enough. Its folder is let go of too.
pub(super) fn leave_parent() -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorClass::Failed, format_args!("the log cannot take the place of stdout: {error}"))
    };
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(|error| failed(error.into()))?;
    std::env::set_current_dir("/").map_err(failed)
}

fn spawn(context: &Context<'_>, args: &MountArgs, dir: &Path, log: &Path) -> Result<Child, Failure> {
    let failed = |what: &str, error: &std::io::Error| {
        Failure::new(error.class(), format_args!("the server of the mount cannot be started: {what}: {error}"))
    };
    let program = std::env::current_exe().map_err(|error| failed("its own program", &error))?;
    let log_file = File::create(log).map_err(|error| failed(&log.display().to_string(), &error))?;
    let values = &context.settings.values;
    let cache = std::path::absolute(&values.cache_dir).map_err(|error| failed("the cache folder", &error))?;
    let mut command = Command::new(&program);
    command.args(["--json", "mount"]).arg(&args.version).arg(dir).args(["--foreground", "--detached"]);
    command.arg("--read-ahead").arg(args.read_ahead.to_string());
    command.args(args.allow_other.then_some("--allow-other"));
    command.env("FOREBAY_REPO", &values.repo).env("FOREBAY_CACHE", cache);
    // The server stands in the root folder, so its paths must not depend on where it was started.
    let identity = std::path::absolute(&values.identity).map_err(|error| failed("the identity", &error))?;
    let nodes = if values.direct { "" } else { &values.nodes };
    command.env("FOREBAY_NODES", nodes).env("FOREBAY_IDENTITY", identity);
    command.env("FOREBAY_TENANT", &values.tenant).env("FOREBAY_JOB", &values.job);
    command.env("FOREBAY_OFFLINE", values.offline.to_string()).env("FOREBAY_MEMORY", &values.memory);
    command.env("FOREBAY_THREADS", values.threads.to_string());
    // One heap for each of many threads would keep what it once had: a third more memory, and nothing gets faster.
    command.env("MALLOC_ARENA_MAX", "2");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
    command.spawn().map_err(|error| failed(&program.display().to_string(), &error))
}

/// Shows what the server says; returns its result, or `None` if it ended without one.
fn listen(context: &Context<'_>, child: &mut Child) -> Result<Option<Value>, Failure> {
    let Some(mut answers) = child.stdout.take() else { return Ok(None) };
    let failed = |error: std::io::Error| Failure::new(ErrorClass::Failed, format_args!("the server is mute: {error}"));
    let (mut pending, mut buffer, mut result) = (Vec::new(), [0; 4096], None);
    loop {
        if context.cancel.is_cancelled() {
            return Err(Failure::new(ErrorClass::Interrupted, "interrupted; nothing is mounted"));
        }
        let time = Timespec::try_from(LOOK_EVERY).ok();
        match poll(&mut [PollFd::new(&answers.as_fd(), PollFlags::IN)], time.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let read = answers.read(&mut buffer).map_err(failed)?;
        if read == 0 || pending.len() > ANSWER_BYTES_MAX {
            return Ok(result);
        }
        pending.extend_from_slice(&buffer[..read]);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let Ok(Value::Object(object)) = serde_json::from_slice(&line) else { continue };
            result = take(context, object)?.or(result);
        }
    }
}

/// Takes one line of the server: shows a warning, fails with an error, returns a result.
fn take(context: &Context<'_>, mut object: Map<String, Value>) -> Result<Option<Value>, Failure> {
    let event = object.remove("event");
    let message = || object.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    match event.as_ref().and_then(Value::as_str) {
        Some("result") => return Ok(Some(Value::Object(object))),
        Some("warning") if context.output.is_json() => context.output.item("warning", Value::Object(object))?,
        Some("warning") => {
            let message = message();
            context.output.warn(Warning { kind: "mount", message, path: None });
        }
        Some("error") => {
            let message = message();
            let class = class_named(object.get("class").and_then(Value::as_str).unwrap_or_default());
            for field in ["class", "message", "exit"] {
                object.remove(field);
            }
            return Err(Failure::new(class, message).with_fields(Value::Object(object)));
        }
        _ => {}
    }
    Ok(None)
}

/// One log for each folder that is mounted on; the next mount there begins it anew.
fn log_path(context: &Context<'_>, dir: &Path) -> Result<PathBuf, Failure> {
    let folder = context.settings.values.cache_dir.join("mount");
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    std::fs::create_dir_all(&folder).map_err(|error| {
        Failure::new(error.class(), format_args!("the folder {} cannot be made: {error}", folder.display()))
    })?;
    let name = &Digest::of(dir.as_os_str().as_encoded_bytes()).to_hex()[..16];
    Ok(folder.join(format!("{name}.log")))
}

/// The end of a log, after a colon.
fn last_words(log: &Path) -> String {
    let said = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said[said.len().saturating_sub(LAST_WORDS)..]).trim().replace('\n', " ");
    if said.is_empty() { said } else { format!(": {said}") }
}

//! Results to stdout, everything else to stderr; as JSON lines, stdout carries nothing but JSON.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;

use forebay_cas::sync::Mutex;
use forebay_cas::{Notices, Warning};
use serde_json::{Value, json};

use crate::args::ColorArg;
use crate::failure::{Failure, class_name};
use crate::{stdio, text};

/// Where a command writes.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    json: bool,
    quiet: bool,
    colors: bool,
    stdout: Mutex<BufWriter<Stdout>>,
    /// Progress bars draw below messages.
    bars: indicatif::MultiProgress,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, color: ColorArg) -> Self {
        let colors = match color {
            ColorArg::Always => true,
            ColorArg::Never => false,
            ColorArg::Auto => io::stderr().is_terminal() && allows_color(),
        };
        let stdout = Mutex::new(BufWriter::with_capacity(64 << 10, io::stdout()));
        let bars = indicatif::MultiProgress::new();
        Self { shared: Arc::new(Shared { json, quiet, colors, stdout, bars }) }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.shared.json
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.quiet
    }

    /// Whether progress can be drawn in place.
    pub(crate) fn draws(&self) -> bool {
        !self.shared.json && !self.shared.quiet && io::stderr().is_terminal() && !is_dumb()
    }

    pub(crate) fn bars(&self) -> &indicatif::MultiProgress {
        &self.shared.bars
    }

    /// A line of a human result; nothing with `--json`.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        if self.is_json() { Ok(()) } else { self.write(line.as_bytes(), true) }
    }

    /// One JSON object among others; nothing without `--json`.
    pub(crate) fn item(&self, event: &str, mut object: Value) -> Result<(), Failure> {
        if !self.is_json() {
            return Ok(());
        }
        object["event"] = json!(event);
        self.write(object.to_string().as_bytes(), true)
    }

    /// The result, the last line of `--json`.
    pub(crate) fn result(&self, object: Value) -> Result<(), Failure> {
        self.item("result", object)?;
        self.flush()
    }

    /// Raw bytes of a result.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(bytes, false)
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.shared.stdout.lock().flush().map_err(|source| Failure::stdout(&source))
    }

    /// A message for people, on stderr.
    pub(crate) fn say(&self, message: &str) {
        if !self.is_json() && !self.is_quiet() {
            self.to_stderr(message);
        }
    }

    /// The error that ends the command.
    pub(crate) fn failure(&self, failure: &Failure) {
        let Failure::Operation { class, message, fields, .. } = failure else { return };
        if self.is_json() {
            let mut object = Value::Object((**fields).clone());
            object["class"] = json!(class_name(*class));
            object["message"] = json!(message);
            object["exit"] = json!(failure.exit_code());
            // There is no better place to say that stdout is closed; the exit code does.
            let _closed = self.item("error", object).and_then(|()| self.flush());
        } else {
            let _closed = self.flush();
            self.to_stderr(&format!("{}: {}", self.paint("error", "31"), text::message(message)));
        }
    }

    fn write(&self, bytes: &[u8], line: bool) -> Result<(), Failure> {
        if stdio::stdout_was_closed() {
            let closed = io::Error::other("it was closed when the command was started");
            return Err(Failure::stdout(&closed));
        }
        let mut stdout = self.shared.stdout.lock();
        let end: &[u8] = if line { b"\n" } else { b"" };
        stdout.write_all(bytes).and_then(|()| stdout.write_all(end)).map_err(|source| Failure::stdout(&source))
    }

    /// Closed or broken stderr is nobody's error.
    fn to_stderr(&self, message: &str) {
        self.shared.bars.suspend(|| {
            let _nobody_reads = writeln!(io::stderr(), "forebay: {message}");
        });
    }

    fn paint(&self, text: &str, color: &str) -> String {
        if self.shared.colors { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Notices for Output {
    fn warn(&self, warning: Warning) {
        if self.is_json() {
            let mut object = json!({ "kind": warning.kind, "message": warning.message });
            if let Some(path) = &warning.path {
                text::add_path(&mut object, path);
            }
            let _closed = self.item("warning", object);
        } else if !self.is_quiet() {
            let message = text::message(&warning.message);
            self.to_stderr(&format!("{}: {message}", self.paint("warning", "33")));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the command line reads the environment")]
fn allows_color() -> bool {
    std::env::var("NO_COLOR").map_or(true, |value| value.is_empty()) && !is_dumb()
}

#[expect(clippy::disallowed_methods, reason = "the command line reads the environment")]
fn is_dumb() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

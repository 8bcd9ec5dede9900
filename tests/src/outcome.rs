//! What one run of the binary said, checked for the faults no run may have.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use base64::Engine;
use serde_json::Value;

/// The exit classes of the command line contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Everything asked for was done and verified.
    Ok,
    /// Anything without a class of its own.
    Failed,
    /// Wrong arguments or configuration.
    Usage,
    /// No such repository, ref, version or path.
    NotFound,
    /// Bytes or a manifest fail a check.
    Corrupt,
    /// Identity, signature or policy refuses.
    Auth,
    /// An egress budget refuses.
    Budget,
    /// Origin or node out of reach.
    Net,
    /// A local disk is full or not writable.
    Space,
    /// A ref moved.
    Conflict,
    /// The source changed while it was read.
    Partial,
    /// After SIGINT.
    Interrupted,
    /// After SIGTERM.
    Terminated,
}

impl Class {
    /// The exit code.
    pub fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Corrupt => 4,
            Self::Auth => 5,
            Self::Budget => 6,
            Self::Net => 7,
            Self::Space => 8,
            Self::Conflict => 9,
            Self::Partial => 10,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The name in the error line of `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Failed => "FAILED",
            Self::Usage => "USAGE",
            Self::NotFound => "NOT_FOUND",
            Self::Corrupt => "CORRUPT",
            Self::Auth => "AUTH",
            Self::Budget => "BUDGET",
            Self::Net => "NET",
            Self::Space => "SPACE",
            Self::Conflict => "CONFLICT",
            Self::Partial => "PARTIAL",
            Self::Interrupted | Self::Terminated => "INTERRUPTED",
        }
    }
}

/// The end of one run.
#[derive(Clone)]
pub struct Outcome {
    /// The command as a shell would show it.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What came out of stdout (empty when it went elsewhere).
    pub stdout: Vec<u8>,
    /// What came out of stderr.
    pub stderr: Vec<u8>,
    /// The high-water mark of resident memory, sampled every few milliseconds.
    pub peak_rss_bytes: u64,
    /// From start to end.
    pub elapsed: Duration,
    /// Whether stdout is content (`cat`), where every byte is allowed.
    pub binary_stdout: bool,
    /// Whether the run was started with `--json`.
    pub json: bool,
}

impl Outcome {
    /// The exit code as a shell shows it: 128 + n after signal n.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().expect("neither a code nor a signal"))
    }

    /// Checks what holds for every run whatever it was asked: no panic, no abort, no escape code, JSON where promised.
    #[track_caller]
    pub fn check_always(&self) {
        let code = self.code();
        assert!(![101, 132, 134, 135, 139].contains(&code), "crashed\n{self:?}");
        for (name, stream) in [("stderr", &self.stderr), ("stdout", &self.stdout)] {
            if name == "stdout" && self.binary_stdout {
                continue;
            }
            assert!(!stream.contains(&0x1b), "an escape byte on {name} without a terminal\n{self:?}");
            for sign in ["panicked at", "RUST_BACKTRACE", "stack backtrace"] {
                assert!(!text(stream).contains(sign), "panic text on {name}\n{self:?}");
            }
        }
    }

    /// Checks the exit code; with `--json`, the last line and its class too.
    #[track_caller]
    pub fn ends(self, class: Class) -> Self {
        assert_eq!(self.code(), class.code(), "wanted {}\n{self:?}", class.name());
        if self.json && class != Class::Ok {
            assert_eq!(self.error()["class"], class.name(), "{self:?}");
        }
        if !self.json && !self.binary_stdout && class != Class::Ok {
            assert!(!self.stderr.is_empty(), "it failed without a word\n{self:?}");
        }
        self
    }

    /// [`Self::ends`] with OK.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.ends(Class::Ok)
    }

    /// Checks that the run did not end well, in one of `classes`.
    #[track_caller]
    pub fn ends_in_one_of(self, classes: &[Class]) -> Self {
        let found = classes.iter().find(|class| class.code() == self.code());
        let Some(class) = found else {
            assert!(found.is_some(), "wanted one of {classes:?}\n{self:?}");
            return self;
        };
        self.ends(*class)
    }

    /// Checks that stderr or the error line names `needle`.
    #[track_caller]
    pub fn says(self, needle: &str) -> Self {
        let said = format!("{}{}", text(&self.stderr), if self.json { text(&self.stdout) } else { String::new() });
        assert!(said.contains(needle), "it does not say «{needle}»\n{self:?}");
        self
    }

    /// Every line of stdout as JSON; the last one, and only that, is the result or the error.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let out = String::from_utf8(self.stdout.clone());
        let out = out.unwrap_or_else(|error| {
            assert_eq!(error.to_string(), "", "JSON is UTF-8\n{self:?}");
            String::new()
        });
        assert!(out.is_empty() || out.ends_with('\n'), "the last JSON line has no end\n{self:?}");
        let mut lines = Vec::new();
        for line in out.lines() {
            let parsed = serde_json::from_str::<Value>(line);
            assert!(parsed.is_ok(), "not JSON: {line}\n{self:?}");
            let value = parsed.expect("checked in the line above");
            assert!(value["event"].is_string(), "a line without an event: {line}\n{self:?}");
            lines.push(value);
        }
        let last = |value: &&Value| value["event"] == "result" || value["event"] == "error";
        assert_eq!(lines.iter().filter(last).count(), 1, "not exactly one result or error\n{self:?}");
        assert!(lines.last().as_ref().is_some_and(last), "the result is not the last line\n{self:?}");
        lines
    }

    /// The result line.
    #[track_caller]
    pub fn result(&self) -> Value {
        let last = self.json_lines().pop().expect("json_lines checked that there is a last line");
        assert_eq!(last["event"], "result", "{self:?}");
        last
    }

    /// A whole number of the result line.
    #[track_caller]
    pub fn num(&self, name: &str) -> u64 {
        field(&self.result(), name)
    }

    /// A text of the result line.
    #[track_caller]
    pub fn str(&self, name: &str) -> String {
        let result = self.result();
        let value = result[name].as_str();
        assert!(value.is_some(), "{name} is no text\n{self:?}");
        value.expect("checked in the line above").to_owned()
    }

    /// The error line; it names its class and carries a message.
    #[track_caller]
    pub fn error(&self) -> Value {
        let last = self.json_lines().pop().expect("json_lines checked that there is a last line");
        assert_eq!(last["event"], "error", "{self:?}");
        assert!(last["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        last
    }

    /// The warning lines; each has a kind and a message.
    #[track_caller]
    pub fn warnings(&self) -> Vec<Value> {
        let mut lines = self.json_lines();
        lines.retain(|line| line["event"] == "warning");
        for line in &lines {
            assert!(line["kind"].is_string() && line["message"].is_string(), "{line}\n{self:?}");
        }
        lines
    }

    /// The lines that list something: neither progress nor warning, result or error.
    #[track_caller]
    pub fn entries(&self) -> Vec<Value> {
        let mut lines = self.json_lines();
        lines.retain(|line| {
            !["progress", "warning", "result", "error"].contains(&line["event"].as_str().unwrap_or_default())
        });
        lines
    }

    /// Raw paths of all listed lines, sorted.
    #[track_caller]
    pub fn listed_paths(&self) -> Vec<Vec<u8>> {
        let mut paths: Vec<_> = self.entries().iter().filter_map(raw_path).collect();
        paths.sort();
        paths
    }

    /// stdout and stderr as text.
    pub fn said(&self) -> String {
        format!("{}{}", text(&self.stdout), text(&self.stderr))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command)?;
        writeln!(f, "  {} after {:?}, peak {} KiB", self.status, self.elapsed, self.peak_rss_bytes >> 10)?;
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let shown = &stream[stream.len().saturating_sub(3000)..];
            writeln!(f, "  {name} ({} bytes): {}", stream.len(), String::from_utf8_lossy(shown).escape_debug())?;
        }
        Ok(())
    }
}

/// A whole number that must be there.
#[track_caller]
pub fn field(value: &Value, name: &str) -> u64 {
    let number = value[name].as_u64();
    assert!(number.is_some(), "{name} is no whole number in {value}");
    number.expect("checked in the line above")
}

/// The exact bytes of a line's path: `path_b64` where there is one, else `path`.
pub fn raw_path(line: &Value) -> Option<Vec<u8>> {
    if let Some(encoded) = line["path_b64"].as_str() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(encoded);
        return Some(decoded.expect("path_b64 is base64"));
    }
    line["path"].as_str().map(|path| path.as_bytes().to_vec())
}

/// Lossy text of bytes.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of a file of the test.
#[track_caller]
pub fn bytes_of(path: impl AsRef<std::path::Path>) -> Vec<u8> {
    let path = path.as_ref();
    let read = std::fs::read(path);
    assert!(read.is_ok(), "cannot read {}: {read:?}", path.display());
    read.expect("checked in the line above")
}

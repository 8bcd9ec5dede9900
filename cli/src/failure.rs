//! One error for the edge: a class, a message, an exit code.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use forebay_cas::{Classify, ErrorClass, chain};
use serde_json::{Map, Value};

use crate::stop;

/// Exit code for wrong arguments.
pub(crate) const USAGE_EXIT: u8 = 2;
/// Exit code of a program that SIGPIPE ends.
const PIPE_EXIT: u8 = 141;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operation failed.
    Operation {
        class: ErrorClass,
        message: String,
        damaged_index: Option<PathBuf>,
        /// Further fields of the JSON error.
        fields: Box<Map<String, Value>>,
    },
    /// Standard output is closed: its reader has seen enough.
    Pipe,
}

impl Failure {
    /// Wrong arguments or settings.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(ErrorClass::Usage, message)
    }

    pub(crate) fn new(class: ErrorClass, message: impl fmt::Display) -> Self {
        let (message, fields) = (message.to_string(), Box::default());
        Self::Operation { class, message, damaged_index: None, fields }
    }

    /// Adds fields to the JSON error.
    pub(crate) fn with_fields(mut self, more: Value) -> Self {
        if let (Self::Operation { fields, .. }, Value::Object(more)) = (&mut self, more) {
            fields.extend(more);
        }
        self
    }

    /// The index cache to throw away before another try.
    pub(crate) fn damaged_index(&self) -> Option<&Path> {
        match self {
            Self::Operation { damaged_index, .. } => damaged_index.as_deref(),
            Self::Pipe => None,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Operation { class: ErrorClass::Interrupted, .. } => stop::exit_code(),
            Self::Operation { class, .. } => exit_code(*class),
            Self::Pipe => PIPE_EXIT,
        }
    }

    /// Writing to standard output failed.
    pub(crate) fn stdout(source: &io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::Pipe;
        }
        Self::new(source.class(), format_args!("standard output cannot be written: {source}"))
    }
}

impl<E: StdError + Classify + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Operation {
            class: error.class(),
            message: chain(&error).replace('\n', " "),
            damaged_index: error.damaged_index().map(Path::to_owned),
            fields: Box::default(),
        }
    }
}

/// The name of a class in JSON.
pub(crate) const fn class_name(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Usage => "USAGE",
        ErrorClass::NotFound => "NOT_FOUND",
        ErrorClass::Corrupt => "CORRUPT",
        ErrorClass::Auth => "AUTH",
        ErrorClass::Budget => "BUDGET",
        ErrorClass::Net => "NET",
        ErrorClass::Space => "SPACE",
        ErrorClass::Conflict => "CONFLICT",
        ErrorClass::Partial => "PARTIAL",
        ErrorClass::Interrupted => "INTERRUPTED",
        _ => "FAILED",
    }
}

/// The class of a name in JSON; [`ErrorClass::Failed`] for one that is unknown.
pub(crate) fn class_named(name: &str) -> ErrorClass {
    let classes = [
        ErrorClass::Usage,
        ErrorClass::NotFound,
        ErrorClass::Corrupt,
        ErrorClass::Auth,
        ErrorClass::Net,
        ErrorClass::Space,
        ErrorClass::Conflict,
        ErrorClass::Partial,
        ErrorClass::Interrupted,
    ];
    classes.into_iter().find(|class| class_name(*class) == name).unwrap_or(ErrorClass::Failed)
}

/// The only place where exit codes are given (interruptions aside, which depend on the signal).
const fn exit_code(class: ErrorClass) -> u8 {
    match class {
        ErrorClass::Usage => USAGE_EXIT,
        ErrorClass::NotFound => 3,
        ErrorClass::Corrupt => 4,
        ErrorClass::Auth => 5,
        ErrorClass::Budget => 6,
        ErrorClass::Net => 7,
        ErrorClass::Space => 8,
        ErrorClass::Conflict => 9,
        ErrorClass::Partial => 10,
        _ => 1,
    }
}

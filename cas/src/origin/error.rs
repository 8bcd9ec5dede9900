//! What can go wrong between this program and an origin.

use std::error::Error as StdError;
use std::io;

use crate::class::{Classify, ErrorClass, chain};

/// A request to an origin failed. Each variant names the origin and, where there is one, the object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The URL or one of its settings is wrong.
    #[error("{url:?} is not a repository this program can open: {reason}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// The store says that there is no such object.
    #[error("{origin} has no object {path}")]
    NotFound {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
    },
    /// The store refuses this caller.
    #[error("{origin} refuses access to {path}")]
    Denied {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// What the store says.
        source: Box<object_store::Error>,
    },
    /// The store cannot be reached, does not answer in time, or answers with a server error to the last try.
    #[error("{origin} does not answer for {path}: {reason}")]
    Unreachable {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// `refused`, `timeout`, `503` and the like, as far as it can be told.
        reason: String,
        /// What the store's client says.
        source: Box<object_store::Error>,
    },
    /// A disk is full or read-only.
    #[error("the disk of {origin} is full or not writable, at {path}")]
    Full {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// What the file system says.
        source: Box<object_store::Error>,
    },
    /// An object is larger than its kind can be.
    #[error("{path} in {origin} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// Bytes it has.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// An object ends before the bytes that were asked for.
    #[error("{path} in {origin} is cut short: {wanted} bytes asked for, {found} there")]
    Short {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes there were.
        found: u64,
    },
    /// An earlier write to a folder failed; this process writes nothing more there.
    #[error("{origin} is not written any more, since an earlier write there failed; check the disk and run again")]
    Poisoned {
        /// The origin.
        origin: String,
    },
    /// Anything else.
    #[error("{origin} failed at {path}")]
    Other {
        /// The origin.
        origin: String,
        /// The object.
        path: String,
        /// What the store says.
        source: Box<object_store::Error>,
    },
}

impl OriginError {
    pub(super) fn from_store(origin: &str, path: &str, source: object_store::Error) -> Self {
        let (origin, path) = (origin.to_owned(), path.to_owned());
        if let Some(io) = find::<io::Error>(&source) {
            match io.class() {
                ErrorClass::Space => return Self::Full { origin, path, source: Box::new(source) },
                _ if io.kind() == io::ErrorKind::PermissionDenied => {
                    return Self::Denied { origin, path, source: Box::new(source) };
                }
                _ => {}
            }
        }
        let source = Box::new(source);
        match *source {
            object_store::Error::NotFound { .. } => Self::NotFound { origin, path },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Denied { origin, path, source }
            }
            // A range that starts behind the end: the object is shorter than its index says.
            object_store::Error::Generic { .. } if is_out_of_range(&source) => {
                Self::Short { origin, path, wanted: 1, found: 0 }
            }
            object_store::Error::Generic { store, .. } if store != "LocalFileSystem" => {
                let reason = reason(&source);
                Self::Unreachable { origin, path, reason, source }
            }
            _ => Self::Other { origin, path, source },
        }
    }
}

impl Classify for OriginError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Url { .. } => ErrorClass::Usage,
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Denied { .. } => ErrorClass::Auth,
            Self::Unreachable { .. } => ErrorClass::Net,
            Self::Full { .. } => ErrorClass::Space,
            Self::TooLarge { .. } | Self::Short { .. } => ErrorClass::Corrupt,
            Self::Poisoned { .. } | Self::Other { .. } => ErrorClass::Failed,
        }
    }
}

/// Whether a failed write may have happened all the same: everything but a refusal.
pub(super) fn is_in_doubt(source: &object_store::Error) -> bool {
    !matches!(
        source,
        object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotImplemented { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::InvalidPath { .. }
            | object_store::Error::UnknownConfigurationKey { .. }
    )
}

/// Looks for an error of one type along the chain of sources.
fn find<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The store's client gives ranges outside an object no variant of their own, so its words decide.
fn is_out_of_range(source: &object_store::Error) -> bool {
    let text = chain(source);
    status(&text) == Some("416")
        || text.contains("InvalidGetRange")
        || text.contains("start larger than length")
        || text.contains("Wanted range starting at")
}

/// The shortest true word for why a store did not answer.
fn reason(source: &object_store::Error) -> String {
    let text = chain(source);
    let lower = text.to_lowercase();
    for (word, means) in [("connection refused", "refused"), ("timed out", "timeout"), ("timeout", "timeout")] {
        if lower.contains(word) {
            return means.to_owned();
        }
    }
    status(&text).unwrap_or("no usable answer").to_owned()
}

/// The HTTP status that a message of the store's client names. Ports, times and keys around it have digits too.
fn status(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_client(text: &str) -> OriginError {
        let source = object_store::Error::Generic { store: "S3", source: text.to_owned().into() };
        OriginError::from_store("s3://bucket", "pack/1", source)
    }

    #[test]
    fn a_status_is_not_looked_for_in_ports_and_times() {
        let away = "Error performing GET http://127.0.0.1:41600/bucket/500 in 2.416s, after 7 retries - \
                    Server returned non-2xx status code: 503 Service Unavailable: ";
        let error = from_client(away);
        assert!(matches!(&error, OriginError::Unreachable { reason, .. } if reason == "503"), "{error:?}");
    }

    #[test]
    fn a_range_behind_the_end_is_a_short_object() {
        let behind = "Server returned non-2xx status code: 416 Range Not Satisfiable: <Error/>";
        assert!(matches!(from_client(behind), OriginError::Short { .. }));
    }

    #[test]
    fn what_names_no_status_has_no_usable_answer() {
        for text in ["Server returned error response: 503", "status code: 5", "status code: abc"] {
            let error = from_client(text);
            assert!(
                matches!(&error, OriginError::Unreachable { reason, .. } if reason == "no usable answer"),
                "{text}"
            );
        }
    }
}

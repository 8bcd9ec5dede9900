//! What an error means to the caller, whatever part it comes from.

/// What went wrong, as a caller has to act on it. The command line maps each class to one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Anything without a class of its own.
    Failed,
    /// Wrong arguments or configuration: change them.
    Usage,
    /// No such repository, ref, version or path.
    NotFound,
    /// Bytes, a manifest or a signature fail a check: do not use them.
    Corrupt,
    /// Identity, token or policy: ask for access.
    Auth,
    /// An egress budget refuses: wait for the next month, or raise it.
    Budget,
    /// Origin or node out of reach or too slow: try again later.
    Net,
    /// A disk is full or not writable: free space.
    Space,
    /// A ref moved or a lock is held: read again, then decide.
    Conflict,
    /// The source changed while it was read, or something is not whole.
    Partial,
    /// The user or the system asked to stop: run again to resume.
    Interrupted,
}

/// Errors that know their class.
pub trait Classify {
    /// The class of this error.
    fn class(&self) -> ErrorClass;

    /// The folder of the index cache, if what went wrong is that it is damaged: it can be deleted and the operation run
    /// again.
    fn damaged_index(&self) -> Option<&std::path::Path> {
        None
    }
}

impl Classify for std::io::Error {
    /// Full and read-only disks are [`ErrorClass::Space`]; a missing file is [`ErrorClass::NotFound`].
    fn class(&self) -> ErrorClass {
        use std::io::ErrorKind;
        match self.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => ErrorClass::Space,
            ErrorKind::NotFound => ErrorClass::NotFound,
            _ => ErrorClass::Failed,
        }
    }
}

/// An error and everything that caused it, as one clause after the other. A cause that is in the text already is not
/// repeated.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}

//! What a file system request can fail with.

use std::sync::Arc;

use forebay_cas::ReadError;
use thiserror::Error;

use crate::inode::{Ino, InodeError};

/// A request cannot be answered.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// It would have to be read first, and the caller did not want to wait.
    #[error("it has not been read yet")]
    NotCached,
    /// No such name.
    #[error("there is no such file")]
    NotFound,
    /// A folder was wanted.
    #[error("it is not a folder")]
    NotFolder,
    /// A file was wanted, and this is a folder.
    #[error("it is a folder")]
    IsFolder,
    /// A symbolic link or a file was wanted, and this is something else.
    #[error("it is not what was asked for")]
    WrongKind,
    /// The kernel asks for what it has given back.
    #[error("inode {ino} is not in use")]
    Stale {
        /// The number.
        ino: Ino,
    },
    /// Inode numbers.
    #[error(transparent)]
    Inode(InodeError),
    /// The manifest or the content cannot be read. Shared with everybody who waited for the same piece.
    #[error(transparent)]
    Read(Arc<ReadError>),
}

impl From<Arc<ReadError>> for TreeError {
    fn from(error: Arc<ReadError>) -> Self {
        Self::Read(error)
    }
}

impl From<ReadError> for TreeError {
    fn from(error: ReadError) -> Self {
        Self::Read(Arc::new(error))
    }
}

impl From<InodeError> for TreeError {
    fn from(error: InodeError) -> Self {
        match error {
            InodeError::Unknown { ino } => Self::Stale { ino },
            InodeError::BadName { .. } => Self::NotFound,
            error => Self::Inode(error),
        }
    }
}

//! What is in a folder, before anything of it is read.

mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_format::{EntryNameError, Timestamp};
use minicbor::{Decode, Encode};

pub(crate) use self::walk::stamp;
pub use self::walk::{ScanOptions, scan};
use crate::class::{Classify, ErrorClass};
use crate::index::FileStamp;
use crate::pattern::PatternError;
use crate::spool::{Spool, SpoolError};

/// What the file system says of a folder itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Attributes {
    /// Permission bits.
    #[n(0)]
    pub mode: u32,
    /// Modification time.
    #[n(1)]
    pub mtime: Timestamp,
}

/// One step of a walk through everything below a root: the names of a folder sorted by raw bytes, each folder entered
/// where its name comes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ScanItem {
    /// A folder; what follows is in it.
    #[n(0)]
    Enter {
        /// Raw bytes.
        #[cbor(n(0), with = "minicbor::bytes")]
        name: Vec<u8>,
        /// Its own.
        #[n(1)]
        attributes: Attributes,
    },
    /// The folder entered last is done.
    #[n(1)]
    Leave,
    /// A regular file.
    #[n(2)]
    File(#[n(0)] ScanFile),
    /// A symbolic link.
    #[n(3)]
    Symlink {
        /// Raw bytes.
        #[cbor(n(0), with = "minicbor::bytes")]
        name: Vec<u8>,
        /// Its own, not those of its target.
        #[n(1)]
        attributes: Attributes,
        /// Raw bytes.
        #[cbor(n(2), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
}

/// A regular file as the file system described it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ScanFile {
    /// Its name in the folder it is in, raw bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Number of the folder in [`Scan::bases`] that its path starts from.
    #[n(1)]
    pub base: usize,
    /// One of the paths given: a link in its place is followed.
    #[n(2)]
    pub is_given: bool,
    /// Device number.
    #[n(3)]
    pub device: u64,
    /// Inode number.
    #[n(4)]
    pub inode: u64,
    /// Permission bits.
    #[n(5)]
    pub mode: u32,
    /// Length and times.
    #[n(6)]
    pub stamp: FileStamp,
}

impl ScanFile {
    /// What all names of the file have in common.
    #[must_use]
    pub const fn key(&self) -> FileKey {
        (self.device, self.inode)
    }
}

/// Device and inode.
pub type FileKey = (u64, u64);

/// The names of a file that has several below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardLinks {
    /// A number for the group that depends on its first path alone.
    pub group: u64,
    /// How many names.
    pub names: u64,
}

/// Everything below a root. The walk itself may be longer than memory and can be read once; what is in memory grows only
/// with the number of files that have several names.
#[derive(Debug)]
pub struct Scan {
    /// The folders to read files from: one for each path given.
    pub bases: Vec<PathBuf>,
    /// The root folder.
    pub root: Attributes,
    pub(crate) items: Spool<ScanItem>,
    /// Files with several names below the root.
    pub hard_links: BTreeMap<FileKey, HardLinks>,
    /// Regular files, by their names.
    pub files: u64,
    /// Bytes of all files, those of further names not counted again.
    pub bytes: u64,
    /// Special files left out.
    pub skipped: u64,
    /// Names that vanished while the folder was listed.
    pub vanished: u64,
}

/// A folder cannot be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// There is no such path.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The path starts with `~`, which only shells know.
    #[error("{} does not exist: ~ is only known to shells, write the whole path", path.display())]
    Tilde {
        /// The path.
        path: PathBuf,
    },
    /// The path is neither a folder nor a regular file.
    #[error("{} is neither a folder nor a regular file", path.display())]
    NotFolder {
        /// The path.
        path: PathBuf,
    },
    /// A path has no last name to be stored by among others.
    #[error("{} has no last name to be stored by, beside other paths; write the folder's own path", path.display())]
    Nameless {
        /// The path.
        path: PathBuf,
    },
    /// Two paths have one last name.
    #[error("{} and {} have the same last name and cannot lie beside each other; rename one", one.display(), other.display())]
    SameName {
        /// A path.
        one: PathBuf,
        /// Another.
        other: PathBuf,
    },
    /// A name cannot be stored since it could lead out of its folder elsewhere.
    #[error("{} cannot be stored: {source}; rename it or leave it out with --exclude", path.display())]
    Name {
        /// The path.
        path: PathBuf,
        /// The rule its name breaks.
        source: EntryNameError,
    },
    /// Folders nest deeper than a manifest can say.
    #[error("{} lies too deep: at most {limit} folders inside each other", path.display())]
    Depth {
        /// The path.
        path: PathBuf,
        /// Levels allowed.
        limit: u32,
    },
    /// A pattern of `--exclude` is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The file system failed.
    #[error("{} cannot be read", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the file system says.
        source: std::io::Error,
    },
    /// What was found cannot be noted.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Asked to stop.
    #[error("stopped while listing {}", path.display())]
    Interrupted {
        /// The root.
        path: PathBuf,
    },
}

impl ScanError {
    /// There is no such path; a `~` that no shell replaced gets a word of its own.
    pub(crate) fn absent(path: &Path) -> Self {
        let path = path.to_owned();
        if path.as_os_str().as_encoded_bytes().starts_with(b"~") {
            Self::Tilde { path }
        } else {
            Self::NotFound { path }
        }
    }

    pub(crate) fn io(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }
}

/// What it means that a path cannot be looked at; `Ok` if it may all the same exist.
///
/// # Errors
/// [`ScanError`] if there is no such path.
pub fn check_path(path: &Path, source: &std::io::Error) -> Result<(), ScanError> {
    match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Err(ScanError::absent(path)),
        _ => Ok(()),
    }
}

impl Classify for ScanError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Tilde { .. }
            | Self::NotFolder { .. }
            | Self::Nameless { .. }
            | Self::SameName { .. }
            | Self::Name { .. }
            | Self::Depth { .. }
            | Self::Pattern(_) => ErrorClass::Usage,
            Self::Io { source, .. } => source.class(),
            Self::Spool(source) => source.class(),
            Self::Interrupted { .. } => ErrorClass::Interrupted,
        }
    }
}

//! What is in a folder, before anything of it is read.

mod walk;

use std::path::{Path, PathBuf};

use forebay_format::{EntryNameError, Timestamp};

pub(crate) use self::walk::stamp;
pub use self::walk::{ScanOptions, scan};
use crate::class::{Classify, ErrorClass};
use crate::index::FileStamp;
use crate::pattern::PatternError;

/// A folder as it was when it was listed.
#[derive(Debug)]
pub struct ScanDir {
    /// Permission bits.
    pub mode: u32,
    /// Modification time.
    pub mtime: Timestamp,
    /// What is in it, sorted by raw name bytes.
    pub entries: Vec<ScanEntry>,
}

/// One name in a folder.
#[derive(Debug)]
pub struct ScanEntry {
    /// Raw bytes.
    pub name: Box<[u8]>,
    /// What it is.
    pub kind: ScanKind,
}

/// What a name is.
#[derive(Debug)]
pub enum ScanKind {
    /// A regular file: its number in [`Scan::files`].
    File(usize),
    /// A folder.
    Dir(ScanDir),
    /// A symbolic link.
    Symlink {
        /// Permission bits.
        mode: u32,
        /// Modification time.
        mtime: Timestamp,
        /// Target, raw bytes.
        target: Box<[u8]>,
    },
}

/// A regular file as the file system described it.
#[derive(Debug)]
pub struct ScanFile {
    /// Path relative to the root folder.
    pub path: PathBuf,
    /// Number of the folder in [`Scan::bases`] that the path starts from.
    pub base: usize,
    /// One of the paths given: a link in its place is followed.
    pub is_given: bool,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Permission bits.
    pub mode: u32,
    /// Length and times.
    pub stamp: FileStamp,
    /// For the second and later names of one file: the number of its first.
    pub same_as: Option<usize>,
    /// Number of the group of names, for a file with several names below the root.
    pub hard_link: Option<u64>,
}

/// Everything below a root.
#[derive(Debug)]
pub struct Scan {
    /// The folders to read files from: one for each path given.
    pub bases: Vec<PathBuf>,
    /// The root folder.
    pub root: ScanDir,
    /// All regular files, in the order a walk by names meets them.
    pub files: Vec<ScanFile>,
    /// Bytes of all files, those of further names not counted again.
    pub bytes: u64,
    /// Special files left out.
    pub skipped: u64,
    /// Names that vanished while the folder was listed.
    pub vanished: u64,
}

impl Scan {
    /// Where to read a file.
    #[must_use]
    pub fn path(&self, file: &ScanFile) -> PathBuf {
        self.bases[file.base].join(&file.path)
    }
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
            Self::Interrupted { .. } => ErrorClass::Interrupted,
        }
    }
}

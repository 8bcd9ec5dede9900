//! The folder a version is restored into. Everything is done relative to open folders, one name at a time, never through
//! a symbolic link: no manifest and no link planted below the folder leads out of it.

mod finish;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use forebay_format::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::FetchError;
use super::plan::{Filter, Plan, PlanFile, PlanLink, Step};
use crate::class::{Classify, ErrorClass};

/// Folders that are worked in need all rights of their owner; their own modes are set at the end.
const WORKING_MODE: u32 = 0o700;
const MODE_BITS: u32 = 0o7777;

/// The folder cannot be written as wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The destination is something else than a folder.
    #[error("{} is not a folder: {reason}", path.display())]
    NotFolder {
        /// The destination.
        path: PathBuf,
        /// What it is.
        reason: &'static str,
    },
    /// Another fetch works in the folder.
    #[error("another fetch is writing to {}; wait for it or choose another folder", path.display())]
    Busy {
        /// The destination.
        path: PathBuf,
    },
    /// A folder is where a file or link has to be.
    #[error("{} is a folder and has to become a file: move it away or use --delete", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("the disk of {} is full: {needed} bytes needed for this file, {free} free", path.display())]
    Full {
        /// What was written.
        path: PathBuf,
        /// Bytes the file takes.
        needed: u64,
        /// Bytes the file system has left.
        free: u64,
        /// What the file system says.
        source: std::io::Error,
    },
    /// The file system failed.
    #[error("{} cannot be written", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the file system says.
        source: std::io::Error,
    },
}

impl Classify for PlaceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotFolder { .. } | Self::Occupied { .. } => ErrorClass::Usage,
            Self::Busy { .. } => ErrorClass::Conflict,
            Self::Full { .. } => ErrorClass::Space,
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorClass::Space,
                _ => source.class(),
            },
        }
    }
}

/// An open destination, locked as long as it lives where the file system has locks.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    root: OwnedFd,
}

impl Place {
    /// Opens the destination and makes it if needed.
    pub(super) fn open(path: &Path) -> Result<Self, PlaceError> {
        let not_folder = |reason| PlaceError::NotFolder { path: path.to_owned(), reason };
        if path.as_os_str().is_empty() {
            return Err(not_folder("the destination is empty"));
        }
        let io = |source: std::io::Error| PlaceError::Io { path: path.to_owned(), source };
        match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => return Err(not_folder("there is a file of that name")),
            Ok(_) => {}
            Err(_) => std::fs::create_dir_all(path).map_err(io)?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| io(errno.into()))?;
        match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(PlaceError::Busy { path: path.to_owned() }),
            // Some cluster file systems have no locks. Two fetches of one version write the same bytes to the same
            // names, so nothing but work is lost there.
            _ => Ok(Self { path: path.to_owned(), root }),
        }
    }

    /// The whole path of a relative one, for messages.
    pub(super) fn whole(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// Opens a folder below the destination, through no link.
    pub(super) fn folder(&self, path: &Path) -> Result<OwnedFd, PlaceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let io = |errno: Errno| self.io(path, errno);
        let mut at = self.root.try_clone().map_err(|source| PlaceError::Io { path: self.whole(path), source })?;
        for name in path {
            at = rustix::fs::openat(&at, name, flags, Mode::empty()).map_err(io)?;
        }
        Ok(at)
    }

    /// Makes all folders of the plan, opens up those that are closed to their owner, and removes what earlier fetches of
    /// other versions left unfinished.
    pub(super) fn make_folders(&self, plan: &mut Plan) -> Result<(), FetchError> {
        let stat = rustix::fs::fstat(&self.root).map_err(|errno| self.io(Path::new(""), errno))?;
        if stat.st_mode & WORKING_MODE != WORKING_MODE {
            let mode = Mode::from_raw_mode((stat.st_mode & MODE_BITS) | WORKING_MODE);
            rustix::fs::fchmod(&self.root, mode).map_err(|errno| self.io(Path::new(""), errno))?;
        }
        let mut parent = LastFolder::default();
        // Partial files of each open folder that no file of the plan goes on with.
        let mut stale = vec![self.partials(Path::new(""))?];
        plan.each(|_, step| {
            match step {
                Step::Enter(dir) => {
                    let is_new = self.make_folder(&dir.path, &mut parent)?;
                    stale.push(if is_new { BTreeSet::new() } else { self.partials(&dir.path)? });
                }
                Step::Leave(dir) => self.sweep(&dir.path, &stale.pop().unwrap_or_default())?,
                Step::File(file) => {
                    if let Some(stale) = stale.last_mut().filter(|stale| !stale.is_empty()) {
                        stale.remove(split(&partial_path(&file)).1);
                    }
                }
                Step::Link(_) => {}
            }
            Ok(())
        })?;
        Ok(self.sweep(Path::new(""), &stale.pop().unwrap_or_default())?)
    }

    /// Whether the folder is new.
    fn make_folder(&self, path: &Path, parent: &mut LastFolder) -> Result<bool, PlaceError> {
        let io = |errno| self.io(path, errno);
        let (above, name) = split(path);
        let above = parent.get(self, above)?;
        match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(WORKING_MODE)) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(io(errno)),
        }
        let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.open_closed(above.as_fd(), path, &stat)?;
            return Ok(false);
        }
        // A link or file where a folder has to be is replaced like any other old entry, never followed.
        rustix::fs::unlinkat(above, name, AtFlags::empty())
            .and_then(|()| rustix::fs::mkdirat(above, name, Mode::from_raw_mode(WORKING_MODE)))
            .map_err(io)?;
        Ok(true)
    }

    /// Names of the partial files in a folder.
    fn partials(&self, path: &Path) -> Result<BTreeSet<OsString>, PlaceError> {
        let io = |errno| self.io(path, errno);
        let mut names = BTreeSet::new();
        for item in Dir::read_from(self.folder(path)?).map_err(io)? {
            let item = item.map_err(io)?;
            if is_partial(item.file_name().to_bytes()) {
                names.insert(OsStr::from_bytes(item.file_name().to_bytes()).to_owned());
            }
        }
        Ok(names)
    }

    fn sweep(&self, path: &Path, stale: &BTreeSet<OsString>) -> Result<(), PlaceError> {
        if stale.is_empty() {
            return Ok(());
        }
        let folder = self.folder(path)?;
        for name in stale {
            rustix::fs::unlinkat(&folder, name.as_os_str(), AtFlags::empty())
                .map_err(|errno| self.io(&path.join(name), errno))?;
        }
        Ok(())
    }

    /// Gives the owner of an existing folder the rights to work in it.
    fn open_closed(&self, above: impl AsFd, path: &Path, stat: &Stat) -> Result<(), PlaceError> {
        if stat.st_mode & WORKING_MODE == WORKING_MODE {
            return Ok(());
        }
        let mode = Mode::from_raw_mode((stat.st_mode & MODE_BITS) | WORKING_MODE);
        // The name has just been seen to be a folder. Were it swapped for a link now, the link would be followed by
        // chmod alone, inside a folder that only this user can write.
        rustix::fs::chmodat(above, split(path).1, mode, AtFlags::empty()).map_err(|errno| self.io(path, errno))
    }

    /// Removes every name that the plan does not have and that the choice of files covers.
    pub(super) fn remove_others(&self, plan: &mut Plan) -> Result<u64, FetchError> {
        let mut removed = 0;
        let mut open = vec![Known { names: Vec::new(), is_there: true }];
        plan.each(|filter, step| {
            let known = open.last_mut().expect("the walk entered what it leaves");
            match step {
                Step::Enter(dir) => {
                    known.names.push((split(&dir.path).1.to_owned(), true));
                    let is_there = known.is_there && self.open_if_there(&dir.path)?;
                    open.push(Known { names: Vec::new(), is_there });
                }
                Step::Leave(dir) => {
                    let known = open.pop().unwrap_or_default();
                    removed += self.remove_unknown(&dir.path, &known, filter)?;
                }
                Step::File(PlanFile { path, .. }) | Step::Link(PlanLink { path, .. }) => {
                    known.names.push((split(&path).1.to_owned(), false));
                }
            }
            Ok(())
        })?;
        Ok(removed + self.remove_unknown(Path::new(""), &open.pop().unwrap_or_default(), &plan.filter)?)
    }

    /// Whether there is a folder; it is opened up to its owner.
    fn open_if_there(&self, path: &Path) -> Result<bool, PlaceError> {
        let (above, name) = split(path);
        let above = self.folder(above)?;
        let stat = match rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(self.io(path, errno)),
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder {
            self.open_closed(&above, path, &stat)?;
        }
        Ok(is_folder)
    }

    fn remove_unknown(&self, path: &Path, known: &Known, filter: &Filter) -> Result<u64, PlaceError> {
        if !known.is_there {
            return Ok(0);
        }
        let mut removed = 0;
        let folder = self.folder(path)?;
        for name in self.names(path, &folder)? {
            let name = OsString::from_vec(name);
            let below = path.join(&name);
            let stat = rustix::fs::statat(&folder, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.io(&below, errno))?;
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if known.has(&name, is_dir) || !filter.wants(&below, is_dir) || is_partial(name.as_bytes()) {
                continue;
            }
            removed += self.remove(&folder, &below, is_dir)?;
        }
        Ok(removed)
    }

    /// Removes a name and, if it is a folder, everything in it; returns how many names.
    fn remove(&self, above: impl AsFd, path: &Path, is_dir: bool) -> Result<u64, PlaceError> {
        let name = split(path).1;
        let io = |errno| self.io(path, errno);
        if !is_dir {
            rustix::fs::unlinkat(above, name, AtFlags::empty()).map_err(io)?;
            return Ok(1);
        }
        let stat = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        self.open_closed(&above, path, &stat)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&above, name, flags, Mode::empty()).map_err(io)?;
        let mut removed = 1;
        for below in self.names(path, &folder)? {
            let below = OsStr::from_bytes(&below);
            let stat = rustix::fs::statat(&folder, below, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            removed += self.remove(&folder, &path.join(below), is_dir)?;
        }
        rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR).map_err(io)?;
        Ok(removed)
    }

    fn names(&self, path: &Path, folder: impl AsFd) -> Result<Vec<Vec<u8>>, PlaceError> {
        let io = |errno| self.io(path, errno);
        let mut names = Vec::new();
        for item in Dir::read_from(folder).map_err(io)? {
            let name = item.map_err(io)?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(super) fn io(&self, path: &Path, errno: Errno) -> PlaceError {
        self.write_error(path, 0, errno.into())
    }

    /// An error of writing `needed` bytes.
    pub(super) fn write_error(&self, path: &Path, needed: u64, source: std::io::Error) -> PlaceError {
        let path = self.whole(path);
        if source.kind() == std::io::ErrorKind::StorageFull {
            let free = rustix::fs::fstatvfs(&self.root).map_or(0, |vfs| vfs.f_bavail.saturating_mul(vfs.f_frsize));
            return PlaceError::Full { path, needed, free, source };
        }
        PlaceError::Io { path, source }
    }
}

/// What a plan has in one folder.
#[derive(Debug, Default)]
struct Known {
    /// Each name, and whether it is a folder's; sorted, for so they come.
    names: Vec<(OsString, bool)>,
    /// Whether there is such a folder already.
    is_there: bool,
}

impl Known {
    /// Whether a name has to be there as what it is; a file may stay where a link has to be, and is replaced.
    fn has(&self, name: &OsStr, is_dir: bool) -> bool {
        self.names.binary_search_by(|(known, _)| known.as_os_str().cmp(name)).is_ok_and(|at| self.names[at].1 == is_dir)
    }
}

/// The folder used last; files come folder by folder.
#[derive(Debug, Default)]
pub(super) struct LastFolder(Option<(PathBuf, OwnedFd)>);

impl LastFolder {
    pub(super) fn get(&mut self, place: &Place, path: &Path) -> Result<&OwnedFd, PlaceError> {
        if self.0.as_ref().is_none_or(|(last, _)| last != path) {
            self.0 = Some((path.to_owned(), place.folder(path)?));
        }
        let (_, folder) = self.0.as_ref().expect("set just now");
        Ok(folder)
    }
}

/// Folder and last name of a relative path that is not empty.
pub(super) fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or_else(|| Path::new("")), path.file_name().unwrap_or_default())
}

/// Where a file grows until it is whole: beside its final name, the same for every run, so that the next run goes on
/// there and two runs never disagree about what is in it.
pub(super) fn partial_path(file: &PlanFile) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(file.path.as_os_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(file.entry.digest.as_bytes());
    let hex = hasher.finalize().to_hex();
    split(&file.path).0.join(format!(".forebay-{}.partial", &hex[..24]))
}

fn is_partial(name: &[u8]) -> bool {
    name.starts_with(b".forebay-") && name.ends_with(b".partial") && name.len() == 41
}

/// Sets mode and modification time of an open file; the access time is left to the system.
pub(super) fn set_metadata(file: &File, mode: u32, mtime: Timestamp) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    rustix::fs::futimens(file, &times(mtime))
}

pub(super) fn times(mtime: Timestamp) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Timestamps { last_access: omit, last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() } }
}

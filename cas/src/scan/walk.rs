//! Listing a folder: one open folder at a time, links never followed, special files left out with a word.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_format::{Limits, Timestamp, check_entry_name};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::{Attributes, FileKey, HardLinks, Scan, ScanError, ScanFile, ScanItem};
use crate::cancel::Cancel;
use crate::index::FileStamp;
use crate::pattern::Patterns;
use crate::progress::{Notices, Progress, Warning};
use crate::spool::Spool;

const MODE_BITS: u32 = 0o7777;
/// Names of one folder that are looked at together: only they are held with what the file system says of them.
const TOGETHER: usize = 4096;

/// What to list and how.
#[derive(Debug, Clone, Copy)]
pub struct ScanOptions<'o> {
    /// Patterns in the manner of `.gitignore`, relative to the root.
    pub exclude: &'o [String],
    /// Folders that are never part of a dataset: the repository and the cache themselves.
    pub own_folders: &'o [PathBuf],
    /// Where a long list is kept.
    pub cache: &'o Path,
}

/// Lists a folder; or a single file as a folder of one; or several folders and files as one folder with these, each by
/// its last name. A symbolic link is followed only if it is one of the paths itself.
///
/// # Errors
/// [`ScanError`] names the path that cannot be listed or stored.
pub fn scan(
    paths: &[PathBuf],
    options: &ScanOptions<'_>,
    progress: &Progress,
    notices: &dyn Notices,
    cancel: &Cancel,
) -> Result<Scan, ScanError> {
    let mut walker = Walker {
        given: PathBuf::new(),
        bases: Vec::new(),
        exclude: Patterns::new(options.exclude)?,
        own: options.own_folders.iter().filter_map(|folder| rustix::fs::stat(folder).ok()).map(|s| key(&s)).collect(),
        progress,
        notices,
        cancel,
        items: Spool::new(options.cache),
        names: BTreeMap::new(),
        files: 0,
        bytes: 0,
        skipped: 0,
        vanished: 0,
    };
    let root = match paths {
        [path] => walker.alone(path)?,
        _ => walker.side_by_side(paths)?,
    };
    let Walker { bases, items, names, files, bytes, skipped, vanished, .. } = walker;
    let hard_links = names.into_iter().filter(|(_, links)| links.names > 1).collect();
    Ok(Scan { bases, root, items, hard_links, files, bytes, skipped, vanished })
}

/// A name with what the file system says of it.
type Listed<'n> = (&'n [u8], Stat);

struct Walker<'w> {
    /// The path that is listed: the only one that is followed if it is a link.
    given: PathBuf,
    /// Paths of files start from the last of these.
    bases: Vec<PathBuf>,
    exclude: Patterns,
    own: Vec<FileKey>,
    progress: &'w Progress,
    notices: &'w dyn Notices,
    cancel: &'w Cancel,
    items: Spool<ScanItem>,
    /// Files that may have more than one name here.
    names: BTreeMap<FileKey, HardLinks>,
    files: u64,
    bytes: u64,
    skipped: u64,
    vanished: u64,
}

impl Walker<'_> {
    /// The only path: what is in the folder; a file as a folder with one entry, the same for every copy of the file.
    fn alone(&mut self, path: &Path) -> Result<Attributes, ScanError> {
        let stat = stat_given(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return self.side_by_side(std::slice::from_ref(&path.to_owned()));
        }
        self.start(path, path);
        self.folder(Path::new(""), 0)?;
        Ok(attributes(&stat))
    }

    /// Each path by its last name, in a folder that is as new as the newest of them.
    fn side_by_side(&mut self, paths: &[PathBuf]) -> Result<Attributes, ScanError> {
        let mut named: Vec<(&OsStr, &Path)> = Vec::with_capacity(paths.len());
        for path in paths {
            let name = path.file_name().ok_or_else(|| ScanError::Nameless { path: path.clone() })?;
            named.push((name, path));
        }
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ScanError::SameName { one: pair[0].1.to_owned(), other: pair[1].1.to_owned() });
        }
        let mut newest = Timestamp { seconds: i64::MIN, nanos: 0 };
        for (name, path) in named {
            self.check_name(path, name.as_bytes())?;
            let stat = stat_given(path)?;
            newest = newest.max(mtime(&stat));
            self.start(path, path.parent().unwrap_or_else(|| Path::new("")));
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.enter(Path::new(name), name.as_bytes(), &stat, 1)?,
                FileType::RegularFile => self.file(Path::new(name), name.as_bytes(), &stat, true)?,
                _ => return Err(ScanError::NotFolder { path: path.to_owned() }),
            }
        }
        Ok(Attributes { mode: 0o755, mtime: newest })
    }

    /// Goes on with one of the paths, whose files are found from `base`.
    fn start(&mut self, given: &Path, base: &Path) {
        given.clone_into(&mut self.given);
        self.bases.push(base.to_owned());
    }

    fn base(&self) -> &Path {
        self.bases.last().expect("a path was started before anything below it")
    }

    fn enter(&mut self, relative: &Path, name: &[u8], stat: &Stat, depth: u32) -> Result<(), ScanError> {
        self.items.push(&ScanItem::Enter { name: name.to_vec(), attributes: attributes(stat) })?;
        self.folder(relative, depth)?;
        Ok(self.items.push(&ScanItem::Leave)?)
    }

    /// What is in a folder.
    fn folder(&mut self, relative: &Path, depth: u32) -> Result<(), ScanError> {
        let path = self.base().join(relative);
        let limit = Limits::DEFAULT.tree_depth;
        if depth > limit {
            return Err(ScanError::Depth { path, limit });
        }
        let mut folder = Some(self.open(&path)?);
        let mut names = list(&path, folder.as_ref().expect("opened just now"))?;
        names.sort_unstable();
        for names in names.chunks(TOGETHER) {
            if self.cancel.is_cancelled() {
                return Err(ScanError::Interrupted { path: self.given.clone() });
            }
            // The folder is closed again before those below are opened.
            let opened = folder.take().map_or_else(|| self.open(&path), Ok)?;
            let listed = self.look(&path, opened, names)?;
            for (name, stat) in listed {
                self.entry(relative.join(OsStr::from_bytes(name)), name, &stat, depth)?;
            }
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, ScanError> {
        let follow = if path == self.given { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        rustix::fs::open(path, flags, Mode::empty()).map_err(|source| ScanError::io(path, source))
    }

    /// What names of a folder are.
    fn look<'n>(&mut self, path: &Path, folder: OwnedFd, names: &'n [Vec<u8>]) -> Result<Vec<Listed<'n>>, ScanError> {
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            match rustix::fs::statat(&folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => listed.push((name.as_slice(), stat)),
                Err(rustix::io::Errno::NOENT) => {
                    self.vanished += 1;
                    self.warn("vanished", &path.join(OsStr::from_bytes(name)), "vanished while it was listed");
                }
                Err(source) => return Err(ScanError::io(&path.join(OsStr::from_bytes(name)), source)),
            }
        }
        Ok(listed)
    }

    fn entry(&mut self, relative: PathBuf, name: &[u8], stat: &Stat, depth: u32) -> Result<(), ScanError> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if self.exclude.matches(&relative, kind == FileType::Directory) {
            return Ok(());
        }
        let path = self.base().join(&relative);
        self.check_name(&path, name)?;
        match kind {
            FileType::Directory if self.own.contains(&key(stat)) => {
                self.warn("skipped", &path, "left out: it is Forebay's own repository or cache folder");
                self.skipped += 1;
                Ok(())
            }
            FileType::Directory => self.enter(&relative, name, stat, depth + 1),
            FileType::RegularFile => self.file(&relative, name, stat, false),
            FileType::Symlink => self.link(&path, name, stat),
            other => {
                self.warn("skipped", &path, &format!("left out: it is a {}", special(other)));
                self.skipped += 1;
                Ok(())
            }
        }
    }

    fn file(&mut self, relative: &Path, name: &[u8], stat: &Stat, is_given: bool) -> Result<(), ScanError> {
        let file = ScanFile {
            name: name.to_vec(),
            base: self.bases.len() - 1,
            is_given,
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode & MODE_BITS,
            stamp: stamp(stat),
        };
        let mut is_first = true;
        if stat.st_nlink > 1 {
            let links = self.names.entry(file.key()).or_insert_with(|| HardLinks { group: group(relative), names: 0 });
            links.names += 1;
            is_first = links.names == 1;
        }
        if is_first {
            self.bytes += file.stamp.size;
            Progress::add(&self.progress.bytes_total, file.stamp.size);
        }
        self.files += 1;
        Progress::add(&self.progress.files_total, 1);
        Ok(self.items.push(&ScanItem::File(file))?)
    }

    fn link(&mut self, path: &Path, name: &[u8], stat: &Stat) -> Result<(), ScanError> {
        match rustix::fs::readlink(path, Vec::new()) {
            Ok(target) => {
                let (name, target) = (name.to_vec(), target.into_bytes());
                Ok(self.items.push(&ScanItem::Symlink { name, attributes: attributes(stat), target })?)
            }
            Err(rustix::io::Errno::NOENT) => {
                self.vanished += 1;
                self.warn("vanished", path, "vanished while it was listed");
                Ok(())
            }
            Err(source) => Err(ScanError::io(path, source)),
        }
    }

    fn check_name(&self, path: &Path, name: &[u8]) -> Result<(), ScanError> {
        check_entry_name(name).map_err(|source| ScanError::Name { path: path.to_owned(), source })
    }

    fn warn(&self, kind: &'static str, path: &Path, what: &str) {
        let message = format!("{} {what}", path.display());
        self.notices.warn(Warning { kind, message, path: Some(path.as_os_str().as_bytes().to_vec()) });
    }
}

/// What the file system says of a path given, links followed.
fn stat_given(path: &Path) -> Result<Stat, ScanError> {
    rustix::fs::stat(path).map_err(|source| match source {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => ScanError::absent(path),
        source => ScanError::io(path, source),
    })
}

/// All names in a folder.
fn list(path: &Path, folder: &OwnedFd) -> Result<Vec<Vec<u8>>, ScanError> {
    let mut names = Vec::new();
    for item in Dir::read_from(folder).map_err(|source| ScanError::io(path, source))? {
        let item = item.map_err(|source| ScanError::io(path, source))?;
        let name = item.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// The number of a group of names, by the first of them.
fn group(first: &Path) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&blake3::hash(first.as_os_str().as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(number)
}

fn special(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "named pipe (fifo)",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        _ => "special file of unknown kind",
    }
}

fn key(stat: &Stat) -> FileKey {
    (stat.st_dev, stat.st_ino)
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes { mode: stat.st_mode & MODE_BITS, mtime: mtime(stat) }
}

/// Length and times of a file.
pub(crate) fn stamp(stat: &Stat) -> FileStamp {
    let ctime = time(stat.st_ctime, stat.st_ctime_nsec);
    FileStamp { size: u64::try_from(stat.st_size).unwrap_or(0), mtime: mtime(stat), ctime }
}

fn mtime(stat: &Stat) -> Timestamp {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

fn time(seconds: i64, nanos: impl TryInto<u32>) -> Timestamp {
    Timestamp { seconds, nanos: nanos.try_into().unwrap_or(0) }
}

//! Listing a folder: one open folder at a time, links never followed, special files left out with a word.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_format::{Limits, Timestamp, check_entry_name};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::{Scan, ScanDir, ScanEntry, ScanError, ScanFile, ScanKind};
use crate::cancel::Cancel;
use crate::index::FileStamp;
use crate::pattern::Patterns;
use crate::progress::{Notices, Progress, Warning};

const MODE_BITS: u32 = 0o7777;

/// What to list and how.
#[derive(Debug, Clone, Copy)]
pub struct ScanOptions<'o> {
    /// Patterns in the manner of `.gitignore`, relative to the root.
    pub exclude: &'o [String],
    /// Folders that are never part of a dataset: the repository and the cache themselves.
    pub own_folders: &'o [PathBuf],
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
        files: Vec::new(),
        names: BTreeMap::new(),
        bytes: 0,
        skipped: 0,
        vanished: 0,
    };
    let root = match paths {
        [path] => walker.alone(path)?,
        _ => walker.side_by_side(paths)?,
    };
    let Walker { bases, mut files, names, bytes, skipped, vanished, .. } = walker;
    group_hard_links(&mut files, &names);
    Ok(Scan { bases, root, files, bytes, skipped, vanished })
}

/// A name with what the file system says of it.
type Listed = (Box<[u8]>, Stat);

struct Walker<'w> {
    /// The path that is listed: the only one that is followed if it is a link.
    given: PathBuf,
    /// Paths of files start from the last of these.
    bases: Vec<PathBuf>,
    exclude: Patterns,
    own: Vec<(u64, u64)>,
    progress: &'w Progress,
    notices: &'w dyn Notices,
    cancel: &'w Cancel,
    files: Vec<ScanFile>,
    /// Files with more than one name: their numbers, by device and inode.
    names: BTreeMap<(u64, u64), Vec<usize>>,
    bytes: u64,
    skipped: u64,
    vanished: u64,
}

impl Walker<'_> {
    /// The only path: what is in the folder; a file as a folder with one entry, the same for every copy of the file.
    fn alone(&mut self, path: &Path) -> Result<ScanDir, ScanError> {
        let stat = stat_given(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return self.side_by_side(std::slice::from_ref(&path.to_owned()));
        }
        self.start(path, path);
        self.folder(Path::new(""), &stat, 0)
    }

    /// Each path by its last name, in a folder that is as new as the newest of them.
    fn side_by_side(&mut self, paths: &[PathBuf]) -> Result<ScanDir, ScanError> {
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
        let mut entries = Vec::with_capacity(named.len());
        for (name, path) in named {
            self.check_name(path, name.as_bytes())?;
            let stat = stat_given(path)?;
            newest = newest.max(mtime(&stat));
            self.start(path, path.parent().unwrap_or_else(|| Path::new("")));
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => ScanKind::Dir(self.folder(Path::new(name), &stat, 1)?),
                FileType::RegularFile => self.file(PathBuf::from(name), &stat, true),
                _ => return Err(ScanError::NotFolder { path: path.to_owned() }),
            };
            entries.push(ScanEntry { name: name.as_bytes().into(), kind });
        }
        Ok(ScanDir { mode: 0o755, mtime: newest, entries })
    }

    /// Goes on with one of the paths, whose files are found from `base`.
    fn start(&mut self, given: &Path, base: &Path) {
        given.clone_into(&mut self.given);
        self.bases.push(base.to_owned());
    }

    fn base(&self) -> &Path {
        self.bases.last().expect("a path was started before anything below it")
    }

    fn folder(&mut self, relative: &Path, stat: &Stat, depth: u32) -> Result<ScanDir, ScanError> {
        let path = self.base().join(relative);
        if self.cancel.is_cancelled() {
            return Err(ScanError::Interrupted { path: self.given.clone() });
        }
        let limit = Limits::DEFAULT.tree_depth;
        if depth > limit {
            return Err(ScanError::Depth { path, limit });
        }
        let mut listed = self.list(&path)?;
        listed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut entries = Vec::with_capacity(listed.len());
        for (name, stat) in listed {
            let below = relative.join(OsStr::from_bytes(&name));
            if let Some(kind) = self.entry(below, &name, &stat, depth)? {
                entries.push(ScanEntry { name, kind });
            }
        }
        Ok(ScanDir { mode: stat.st_mode & MODE_BITS, mtime: mtime(stat), entries })
    }

    /// All names of a folder with what they are. The folder is closed again before those below are opened.
    fn list(&mut self, path: &Path) -> Result<Vec<Listed>, ScanError> {
        let follow = if path == self.given { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| ScanError::io(path, source))?;
        let mut listed = Vec::new();
        for item in Dir::read_from(&folder).map_err(|source| ScanError::io(path, source))? {
            let item = item.map_err(|source| ScanError::io(path, source))?;
            let name = item.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => listed.push((name.to_bytes().into(), stat)),
                Err(rustix::io::Errno::NOENT) => {
                    self.vanished += 1;
                    self.warn(
                        "vanished",
                        &path.join(OsStr::from_bytes(name.to_bytes())),
                        "vanished while it was listed",
                    );
                }
                Err(source) => return Err(ScanError::io(&path.join(OsStr::from_bytes(name.to_bytes())), source)),
            }
        }
        Ok(listed)
    }

    fn entry(
        &mut self,
        relative: PathBuf,
        name: &[u8],
        stat: &Stat,
        depth: u32,
    ) -> Result<Option<ScanKind>, ScanError> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if self.exclude.matches(&relative, kind == FileType::Directory) {
            return Ok(None);
        }
        let path = self.base().join(&relative);
        self.check_name(&path, name)?;
        match kind {
            FileType::Directory if self.own.contains(&key(stat)) => {
                self.warn("skipped", &path, "left out: it is Forebay's own repository or cache folder");
                self.skipped += 1;
                Ok(None)
            }
            FileType::Directory => self.folder(&relative, stat, depth + 1).map(ScanKind::Dir).map(Some),
            FileType::RegularFile => Ok(Some(self.file(relative, stat, false))),
            FileType::Symlink => self.link(&path, stat),
            other => {
                self.warn("skipped", &path, &format!("left out: it is a {}", special(other)));
                self.skipped += 1;
                Ok(None)
            }
        }
    }

    fn file(&mut self, path: PathBuf, stat: &Stat, is_given: bool) -> ScanKind {
        let number = self.files.len();
        let stamp = stamp(stat);
        let (device, inode) = key(stat);
        let mut same_as = None;
        if stat.st_nlink > 1 {
            let names = self.names.entry((device, inode)).or_default();
            same_as = names.first().copied();
            names.push(number);
        }
        if same_as.is_none() {
            self.bytes += stamp.size;
            Progress::add(&self.progress.bytes_total, stamp.size);
        }
        Progress::add(&self.progress.files_total, 1);
        let mode = stat.st_mode & MODE_BITS;
        let base = self.bases.len() - 1;
        self.files.push(ScanFile { path, base, is_given, device, inode, mode, stamp, same_as, hard_link: None });
        ScanKind::File(number)
    }

    fn link(&mut self, path: &Path, stat: &Stat) -> Result<Option<ScanKind>, ScanError> {
        match rustix::fs::readlink(path, Vec::new()) {
            Ok(target) => {
                let target = target.to_bytes().into();
                Ok(Some(ScanKind::Symlink { mode: stat.st_mode & MODE_BITS, mtime: mtime(stat), target }))
            }
            Err(rustix::io::Errno::NOENT) => {
                self.vanished += 1;
                self.warn("vanished", path, "vanished while it was listed");
                Ok(None)
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

/// Files found under several names get a number that depends on their first path alone.
fn group_hard_links(files: &mut [ScanFile], names: &BTreeMap<(u64, u64), Vec<usize>>) {
    for group in names.values().filter(|group| group.len() > 1) {
        let first = files[group[0]].path.as_os_str().as_bytes();
        let mut number = [0; 8];
        number.copy_from_slice(&blake3::hash(first).as_bytes()[..8]);
        for file in group {
            files[*file].hard_link = Some(u64::from_le_bytes(number));
        }
    }
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

fn key(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
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

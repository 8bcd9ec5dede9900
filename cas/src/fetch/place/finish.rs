//! The last steps of a fetch: further names, links, modes and times of folders, and what is remembered.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_format::{Snapshot, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use super::{LastFolder, MODE_BITS, Place, PlaceError, split, times};
use crate::clock::Clock;
use crate::fetch::FetchError;
use crate::fetch::plan::{Plan, PlanFile, PlanLink, Step};
use crate::index::{LocalIndex, StatRecord};
use crate::scan::stamp;

/// Records of files written to the index at once.
const STATS_BATCH: usize = 4096;

impl Place {
    /// Makes further names and links, then gives the folders their modes and times, deepest first, the root last.
    ///
    /// The files are remembered as they are now, so that the next fetch need not read them. Those that changed so lately
    /// that another change could look the same are not.
    pub(in crate::fetch) fn finish(
        &self,
        plan: &mut Plan,
        root: &Snapshot,
        index: &LocalIndex,
        clock: &dyn Clock,
    ) -> Result<(), FetchError> {
        let mut last = LastFolder::default();
        plan.each(|_, step| {
            match step {
                Step::File(file) => {
                    if let Some(first) = &file.same_as {
                        self.link_name(&first.path, &file, &mut last)?;
                    }
                }
                Step::Link(link) => self.symlink(&link, &mut last)?,
                Step::Enter(_) | Step::Leave(_) => {}
            }
            Ok(())
        })?;
        let now = clock.now();
        let mut batch: Vec<(u64, u64, StatRecord)> = Vec::new();
        let put = |batch: &mut Vec<(u64, u64, StatRecord)>| {
            let put = index.put_stats(batch.iter().map(|(device, inode, record)| (*device, *inode, record)));
            batch.clear();
            put
        };
        plan.each(|_, step| {
            match step {
                Step::File(file) => {
                    // Whatever keeps a file from being looked at again only costs the next fetch time.
                    let Ok(stat) = self.stat(&file.path, &mut last) else { return Ok(()) };
                    let stamp = stamp(&stat);
                    if stamp.size == file.entry.size && stamp.is_settled(now) {
                        batch.push((stat.st_dev, stat.st_ino, StatRecord::fetched(stamp, file.entry.digest)));
                    }
                    if batch.len() == STATS_BATCH {
                        put(&mut batch)?;
                    }
                }
                Step::Leave(dir) => {
                    let folder = self.folder(&dir.path)?;
                    self.set_folder(&folder, &dir.path, dir.mode, dir.mtime)?;
                }
                Step::Enter(_) | Step::Link(_) => {}
            }
            Ok(())
        })?;
        put(&mut batch)?;
        Ok(self.set_folder(&self.root, Path::new(""), root.mode, root.mtime)?)
    }

    /// What is at a path now, links not followed.
    pub(in crate::fetch) fn stat(&self, path: &Path, last: &mut LastFolder) -> Result<Stat, Errno> {
        let (above, name) = split(path);
        let folder = last.get(self, above).map_err(|_gone| Errno::NOENT)?;
        rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Gives a file another name, unless it has it.
    fn link_name(&self, first: &Path, file: &PlanFile, last: &mut LastFolder) -> Result<(), PlaceError> {
        let io = |errno| self.io(&file.path, errno);
        let (above, name) = split(first);
        let first_folder = self.folder(above)?;
        let target = rustix::fs::statat(&first_folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io)?;
        if let Ok(stat) = self.stat(&file.path, last) {
            if (stat.st_dev, stat.st_ino) == (target.st_dev, target.st_ino) {
                return Ok(());
            }
            self.refuse_folder(&file.path, &stat)?;
        }
        let partial = super::partial_path(file);
        let partial_name = split(&partial).1;
        let folder = last.get(self, split(&file.path).0)?;
        remove_if_there(folder, partial_name).map_err(io)?;
        rustix::fs::linkat(&first_folder, name, folder, partial_name, AtFlags::empty()).map_err(io)?;
        rustix::fs::renameat(folder, partial_name, folder, split(&file.path).1).map_err(io)?;
        // Renaming over another name of the same file does nothing and leaves both.
        remove_if_there(folder, partial_name).map_err(io)
    }

    fn symlink(&self, link: &PlanLink, last: &mut LastFolder) -> Result<(), PlaceError> {
        let io = |errno| self.io(&link.path, errno);
        let stat = self.stat(&link.path, last);
        let (above, name) = split(&link.path);
        let folder = last.get(self, above)?;
        if let Ok(stat) = &stat {
            self.refuse_folder(&link.path, stat)?;
        }
        let is_link = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        let same = is_link
            && rustix::fs::readlinkat(folder, name, Vec::new()).is_ok_and(|target| target.to_bytes() == link.target);
        if !same {
            let hex = blake3::hash(link.path.as_os_str().as_bytes()).to_hex();
            let partial = PathBuf::from(format!(".forebay-{}.partial", &hex[..24]));
            remove_if_there(folder, &partial).map_err(io)?;
            rustix::fs::symlinkat(link.target.as_slice(), folder, &partial).map_err(io)?;
            rustix::fs::renameat(folder, &partial, folder, name).map_err(io)?;
        }
        rustix::fs::utimensat(folder, name, &times(link.mtime), AtFlags::SYMLINK_NOFOLLOW).map_err(io)
    }

    fn set_folder(&self, folder: &OwnedFd, path: &Path, mode: u32, mtime: Timestamp) -> Result<(), PlaceError> {
        let io = |errno| self.io(path, errno);
        let stat = rustix::fs::fstat(folder).map_err(io)?;
        if stat.st_mode & MODE_BITS != mode {
            rustix::fs::fchmod(folder, Mode::from_raw_mode(mode)).map_err(io)?;
        }
        rustix::fs::futimens(folder, &times(mtime)).map_err(io)
    }

    /// A folder is not silently replaced by a file or link.
    pub(in crate::fetch) fn refuse_folder(&self, path: &Path, stat: &Stat) -> Result<(), PlaceError> {
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(PlaceError::Occupied { path: self.whole(path) });
        }
        Ok(())
    }
}

fn remove_if_there(folder: &OwnedFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

//! What has to be where: the whole version as a walk through its folders. The walk may be longer than memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_format::{Directory, Entry, EntryKind, FileEntry, Snapshot, Timestamp, Totals};
use minicbor::{Decode, Encode};

use super::{FetchError, FetchOptions};
use crate::pattern::{PatternError, Patterns};
use crate::repository::ChunkReader;
use crate::spool::{Spool, SpoolReader};
use crate::tree::{Visitor, walk};

/// A folder to be there. Paths are relative to the destination.
#[derive(Debug, Clone, Encode, Decode)]
pub(super) struct PlanDir {
    #[cbor(n(0), with = "as_bytes")]
    pub(super) path: PathBuf,
    #[n(1)]
    pub(super) mode: u32,
    #[n(2)]
    pub(super) mtime: Timestamp,
}

/// A regular file to be there.
#[derive(Debug, Encode, Decode)]
pub(super) struct PlanFile {
    #[cbor(n(0), with = "as_bytes")]
    pub(super) path: PathBuf,
    #[n(1)]
    pub(super) mode: u32,
    #[n(2)]
    pub(super) mtime: Timestamp,
    #[n(3)]
    pub(super) entry: FileEntry,
    /// Another name of the file at this path.
    #[n(4)]
    pub(super) same_as: Option<FirstName>,
    /// Files before it in the walk.
    #[n(5)]
    pub(super) number: u64,
}

/// Path of a file's first name.
#[derive(Debug, Clone, Encode, Decode)]
pub(super) struct FirstName {
    #[cbor(n(0), with = "as_bytes")]
    pub(super) path: PathBuf,
}

/// A symbolic link to be there.
#[derive(Debug, Encode, Decode)]
pub(super) struct PlanLink {
    #[cbor(n(0), with = "as_bytes")]
    pub(super) path: PathBuf,
    #[n(1)]
    pub(super) mtime: Timestamp,
    #[cbor(n(2), with = "minicbor::bytes")]
    pub(super) target: Vec<u8>,
}

/// One step of the walk: folders before what they hold, names sorted by raw bytes.
#[derive(Debug, Encode, Decode)]
pub(super) enum Step {
    #[n(0)]
    Enter(#[n(0)] PlanDir),
    /// All of the folder has come.
    #[n(1)]
    Leave(#[n(0)] PlanDir),
    #[n(2)]
    File(#[n(0)] PlanFile),
    #[n(3)]
    Link(#[n(0)] PlanLink),
}

/// Everything that is asked for, below the root folder.
#[derive(Debug)]
pub(super) struct Plan {
    steps: SpoolReader<Step>,
    pub(super) totals: Totals,
    pub(super) filter: Filter,
}

/// Which paths are asked for.
#[derive(Debug)]
pub(super) struct Filter {
    include: Patterns,
    exclude: Patterns,
}

impl Filter {
    fn new(options: &FetchOptions) -> Result<Self, PatternError> {
        Ok(Self { include: Patterns::new(&options.include)?, exclude: Patterns::new(&options.exclude)? })
    }

    /// Whether a path is asked for, on its own or with a folder above it.
    pub(super) fn wants(&self, path: &Path, is_dir: bool) -> bool {
        (self.include.is_empty() || self.include.covers(path, is_dir)) && !self.exclude.covers(path, is_dir)
    }
}

impl Plan {
    /// Walks the manifest.
    pub(super) fn read(reader: &ChunkReader, root: &Snapshot, options: &FetchOptions) -> Result<Self, FetchError> {
        let mut planner = Planner {
            filter: Filter::new(options)?,
            steps: Spool::new(&options.cache),
            totals: Totals::default(),
            open: Vec::new(),
            names: BTreeMap::new(),
        };
        walk(reader, &root.root, &mut planner)?;
        planner.leave_to(0)?;
        let Planner { filter, steps, totals, .. } = planner;
        Ok(Self { steps: steps.read()?, totals, filter })
    }

    /// Goes through the steps from the first.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(&Filter, Step) -> Result<(), FetchError>,
    ) -> Result<(), FetchError> {
        self.steps.rewind()?;
        for step in &mut self.steps {
            take(&self.filter, step?)?;
        }
        Ok(())
    }
}

struct Planner {
    filter: Filter,
    steps: Spool<Step>,
    totals: Totals,
    /// Folders that the walk is in, and whether they are in the plan yet: with a choice of files, folders nobody needs are
    /// left out.
    open: Vec<(PlanDir, bool)>,
    /// First name of each group, with its content.
    names: BTreeMap<u64, (FirstName, FileEntry)>,
}

impl Visitor for Planner {
    type Error = FetchError;

    fn enter(&mut self, path: &[u8], entry: &Entry, _: &Directory) -> Result<bool, FetchError> {
        self.leave_to(depth(path))?;
        let path = to_path(path);
        if self.filter.exclude.covers(&path, true) {
            return Ok(false);
        }
        let is_wanted = self.filter.wants(&path, true);
        self.open.push((PlanDir { path, mode: entry.mode, mtime: entry.mtime }, false));
        if is_wanted {
            self.need_open()?;
        }
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), FetchError> {
        self.leave_to(depth(path))?;
        let path = to_path(path);
        if !self.filter.wants(&path, false) {
            return Ok(());
        }
        self.need_open()?;
        let step = match &entry.kind {
            EntryKind::Symlink(target) => {
                self.totals.links += 1;
                Step::Link(PlanLink { path, mtime: entry.mtime, target: target.clone() })
            }
            EntryKind::File(file) => {
                let number = self.totals.files;
                self.totals.files += 1;
                // The manifest's own sum has been checked to fit.
                self.totals.bytes += file.size;
                let same_as = self.first_name(&path, file);
                let entry_file = file.clone();
                let (mode, mtime) = (entry.mode, entry.mtime);
                Step::File(PlanFile { path, mode, mtime, entry: entry_file, same_as, number })
            }
            EntryKind::Dir(_) => return Ok(()),
        };
        Ok(self.steps.push(&step)?)
    }
}

impl Planner {
    /// Leaves folders until so many are open.
    fn leave_to(&mut self, depth: usize) -> Result<(), FetchError> {
        while self.open.len() > depth {
            if let Some((dir, true)) = self.open.pop() {
                self.steps.push(&Step::Leave(dir))?;
            }
        }
        Ok(())
    }

    /// The open folders have to be there.
    fn need_open(&mut self) -> Result<(), FetchError> {
        for (dir, is_in_plan) in self.open.iter_mut().filter(|(_, is_in_plan)| !is_in_plan) {
            self.steps.push(&Step::Enter(dir.clone()))?;
            self.totals.dirs += 1;
            *is_in_plan = true;
        }
        Ok(())
    }

    /// Names of one group must be one file; a manifest that says otherwise gets separate files.
    fn first_name(&mut self, path: &Path, file: &FileEntry) -> Option<FirstName> {
        let group = file.hard_link?;
        match self.names.get(&group) {
            Some((first, entry)) => (entry == file).then(|| first.clone()),
            None => {
                self.names.insert(group, (FirstName { path: path.to_owned() }, file.clone()));
                None
            }
        }
    }
}

/// Folders above a path.
fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

fn to_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// Paths as their raw bytes.
mod as_bytes {
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    pub(super) fn encode<C, W: Write>(
        path: &Path,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.bytes(path.as_os_str().as_bytes()).map(drop)
    }

    pub(super) fn decode<C>(decoder: &mut Decoder<'_>, _: &mut C) -> Result<PathBuf, Error> {
        decoder.bytes().map(super::to_path)
    }
}

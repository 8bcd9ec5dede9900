//! What has to be where: the whole version as a list of folders, files and links.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_format::{Directory, Entry, EntryKind, FileEntry, Snapshot, Timestamp, Totals};

use super::{FetchError, FetchOptions};
use crate::pattern::{PatternError, Patterns};
use crate::repository::{ChunkReader, ReadError};
use crate::tree::{Visitor, walk};

/// Small files done together, so that their chunks are read in long runs.
const UNIT_FILES: usize = 256;
const UNIT_BYTES: u64 = 4 << 20;

/// A folder to be there.
#[derive(Debug)]
pub(super) struct PlanDir {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) mtime: Timestamp,
}

/// A regular file to be there.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) mtime: Timestamp,
    pub(super) entry: FileEntry,
    /// Another name of this file.
    pub(super) same_as: Option<usize>,
}

/// A symbolic link to be there.
#[derive(Debug)]
pub(super) struct PlanLink {
    pub(super) path: PathBuf,
    pub(super) mtime: Timestamp,
    pub(super) target: Vec<u8>,
}

/// Everything that is asked for.
#[derive(Debug)]
pub(super) struct Plan {
    /// Parents before what they hold; the root is not among them.
    pub(super) dirs: Vec<PlanDir>,
    pub(super) files: Vec<PlanFile>,
    pub(super) links: Vec<PlanLink>,
    pub(super) totals: Totals,
    /// Neighbouring files for one thread at a time.
    pub(super) units: Vec<Range<usize>>,
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
        let filter = Filter::new(options)?;
        let mut planner = Planner {
            everything: filter.include.is_empty(),
            plan: Self {
                dirs: Vec::new(),
                files: Vec::new(),
                links: Vec::new(),
                totals: Totals::default(),
                units: Vec::new(),
                filter,
            },
            names: BTreeMap::new(),
        };
        walk(reader, &root.root, &mut planner)?;
        let mut plan = planner.plan;
        plan.drop_unneeded_folders();
        plan.totals.dirs = plan.dirs.len() as u64;
        plan.units = units(&plan.files);
        Ok(plan)
    }

    /// With a choice of files, only the folders above them are made.
    fn drop_unneeded_folders(&mut self) {
        let filter = &self.filter;
        if filter.include.is_empty() {
            return;
        }
        let mut needed: BTreeMap<&Path, ()> = BTreeMap::new();
        let paths = self.files.iter().map(|file| &file.path).chain(self.links.iter().map(|link| &link.path));
        for path in paths {
            needed.extend(path.ancestors().skip(1).map(|above| (above, ())));
        }
        self.dirs.retain(|dir| needed.contains_key(dir.path.as_path()) || filter.wants(&dir.path, true));
    }
}

struct Planner {
    everything: bool,
    plan: Plan,
    /// First file of each group of names.
    names: BTreeMap<u64, usize>,
}

impl Visitor for Planner {
    type Error = ReadError;

    fn enter(&mut self, path: &[u8], entry: &Entry, _: &Directory) -> Result<bool, ReadError> {
        let path = to_path(path);
        if self.plan.filter.exclude.covers(&path, true) {
            return Ok(false);
        }
        // With a choice of files, folders nobody needs are dropped at the end.
        self.plan.dirs.push(PlanDir { path, mode: entry.mode, mtime: entry.mtime });
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        let path = to_path(path);
        let wanted = if self.everything {
            !self.plan.filter.exclude.covers(&path, false)
        } else {
            self.plan.filter.wants(&path, false)
        };
        if !wanted {
            return Ok(());
        }
        let totals = &mut self.plan.totals;
        match &entry.kind {
            EntryKind::Symlink(target) => {
                totals.links += 1;
                self.plan.links.push(PlanLink { path, mtime: entry.mtime, target: target.clone() });
            }
            EntryKind::File(file) => {
                totals.files += 1;
                // The manifest's own sum has been checked to fit.
                totals.bytes += file.size;
                let number = self.plan.files.len();
                let first = file.hard_link.map(|group| *self.names.entry(group).or_insert(number));
                let same_as = first.filter(|first| self.is_same(*first, number, file));
                let entry_file = file.clone();
                self.plan.files.push(PlanFile {
                    path,
                    mode: entry.mode,
                    mtime: entry.mtime,
                    entry: entry_file,
                    same_as,
                });
            }
            EntryKind::Dir(_) => {}
        }
        Ok(())
    }
}

impl Planner {
    /// Names of one group must be one file; a manifest that says otherwise gets separate files.
    fn is_same(&self, first: usize, number: usize, file: &FileEntry) -> bool {
        first != number && self.plan.files.get(first).is_some_and(|other| other.entry == *file)
    }
}

fn units(files: &[PlanFile]) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for (number, file) in files.iter().enumerate() {
        let full = number - start == UNIT_FILES || bytes + file.entry.size > UNIT_BYTES;
        if full && number > start {
            units.push(start..number);
            (start, bytes) = (number, 0);
        }
        bytes = bytes.saturating_add(file.entry.size);
    }
    if start < files.len() {
        units.push(start..files.len());
    }
    units
}

fn to_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

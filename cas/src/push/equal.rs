//! Whether a step that is there already is equal to what would be stored: by names, modes and bytes. Times do not count,
//! for a job that starts again at an earlier step writes the same files at another time.

use forebay_format::{Directory, Entry, EntryKind, FileDigest, RefVersion};

use super::{Made, PushError, PushOptions, PushReport};
use crate::numbers::length;
use crate::repository::{ReadError, Repository};
use crate::tree::{Visitor, walk};

/// Reports the version that is there, if it is equal.
pub(super) fn check(
    repository: &mut Repository,
    made: &Made,
    version: RefVersion,
    options: &PushOptions,
    report: &mut PushReport,
) -> Result<(), PushError> {
    if version.snapshot != made.snapshot && !is_equal(repository, made, &version)? {
        let (name, step) = (options.name.clone(), version.step.unwrap_or_default());
        return Err(PushError::StepTaken { name, step, found: version.snapshot, new: made.snapshot });
    }
    report.snapshot = version.snapshot;
    report.sequence = version.sequence;
    report.parent = version.parent;
    report.envelope = version.envelope;
    (report.new_chunks, report.new_bytes, report.stored_bytes) = (0, 0, 0);
    Ok(())
}

fn is_equal(repository: &mut Repository, made: &Made, version: &RefVersion) -> Result<bool, PushError> {
    let reader = repository.reader()?;
    let snapshot = reader.snapshot(version.snapshot)?;
    if snapshot.root.totals != made.totals || snapshot.mode != made.mode {
        return Ok(false);
    }
    let mut there = Collector::default();
    walk(&reader, &snapshot.root, &mut there)?;
    Ok(there.finish() == made.shape.finish())
}

/// Everything below a root but its times, as one hash: each step of the walk with the length of what follows.
#[derive(Debug, Default)]
pub(super) struct Shape(blake3::Hasher);

impl Shape {
    pub(super) fn enter(&mut self, name: &[u8], mode: u32) {
        self.item(b'd', &[name, &mode.to_le_bytes()]);
    }

    pub(super) fn leave(&mut self) {
        self.item(b'u', &[]);
    }

    pub(super) fn file(&mut self, name: &[u8], mode: u32, digest: FileDigest) {
        self.item(b'f', &[name, &mode.to_le_bytes(), digest.as_bytes()]);
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) {
        self.item(b'l', &[name, target]);
    }

    pub(super) fn finish(&self) -> blake3::Hash {
        self.0.finalize()
    }

    fn item(&mut self, kind: u8, parts: &[&[u8]]) {
        self.0.update(&[kind]);
        for part in parts {
            self.0.update(&length(part.len()).to_le_bytes()).update(part);
        }
    }
}

/// The shape of a version.
#[derive(Default)]
struct Collector {
    shape: Shape,
    /// Folders entered and not left.
    depth: usize,
}

impl Collector {
    /// Leaves folders until the parent of what has this path is open; returns its last name.
    fn leave_up_to<'p>(&mut self, path: &'p [u8]) -> &'p [u8] {
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        while self.depth > depth {
            self.depth -= 1;
            self.shape.leave();
        }
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }

    fn finish(mut self) -> blake3::Hash {
        self.leave_up_to(b"");
        self.shape.finish()
    }
}

impl Visitor for Collector {
    type Error = ReadError;

    fn enter(&mut self, path: &[u8], entry: &Entry, _: &Directory) -> Result<bool, ReadError> {
        let name = self.leave_up_to(path);
        self.shape.enter(name, entry.mode);
        self.depth += 1;
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        let name = self.leave_up_to(path);
        match &entry.kind {
            EntryKind::File(file) => self.shape.file(name, entry.mode, file.digest),
            EntryKind::Symlink(target) => self.shape.link(name, target),
            EntryKind::Dir(_) => {}
        }
        Ok(())
    }
}

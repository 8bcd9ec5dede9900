//! Whether a step that is there already is equal to what would be stored: by names, modes and bytes. Times do not count,
//! for a job that starts again at an earlier step writes the same files at another time.

use std::collections::BTreeMap;

use forebay_format::{Directory, Entry, EntryKind, FileDigest, RefVersion};

use super::content::FileOutcome;
use super::{Made, PushError, PushOptions, PushReport};
use crate::repository::{ReadError, Repository};
use crate::scan::{Scan, ScanDir, ScanKind};
use crate::tree::{Visitor, push_name, walk};

/// Reports the version that is there, if it is equal.
pub(super) fn check(
    repository: &mut Repository,
    scan: &Scan,
    made: &Made,
    version: RefVersion,
    options: &PushOptions,
    report: &mut PushReport,
) -> Result<(), PushError> {
    if version.snapshot != made.snapshot && !is_equal(repository, scan, made, &version)? {
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

/// What a name is, its time aside.
#[derive(PartialEq, Eq)]
enum Shape {
    Dir(u32),
    File(u32, FileDigest),
    Link(Vec<u8>),
}

type Shapes = BTreeMap<Vec<u8>, Shape>;

fn is_equal(repository: &mut Repository, scan: &Scan, made: &Made, version: &RefVersion) -> Result<bool, PushError> {
    let reader = repository.reader()?;
    let snapshot = reader.snapshot(version.snapshot)?;
    if snapshot.root.totals != made.totals || snapshot.mode != scan.root.mode {
        return Ok(false);
    }
    let mut there = Collector(Shapes::new());
    walk(&reader, &snapshot.root, &mut there)?;
    let mut here = Shapes::new();
    collect(&scan.root, scan, &made.outcomes, &mut Vec::new(), &mut here);
    Ok(here == there.0)
}

fn collect(dir: &ScanDir, scan: &Scan, outcomes: &[FileOutcome], path: &mut Vec<u8>, shapes: &mut Shapes) {
    for entry in &dir.entries {
        let above = path.len();
        push_name(path, &entry.name);
        match &entry.kind {
            ScanKind::Dir(below) => {
                shapes.insert(path.clone(), Shape::Dir(below.mode));
                collect(below, scan, outcomes, path, shapes);
            }
            ScanKind::Symlink { target, .. } => {
                shapes.insert(path.clone(), Shape::Link(target.to_vec()));
            }
            ScanKind::File(number) => {
                let file = &scan.files[*number];
                if let Some(stored) = outcomes[file.same_as.unwrap_or(*number)].stored() {
                    shapes.insert(path.clone(), Shape::File(file.mode, stored.digest));
                }
            }
        }
        path.truncate(above);
    }
}

struct Collector(Shapes);

impl Visitor for Collector {
    type Error = ReadError;

    fn enter(&mut self, path: &[u8], entry: &Entry, _: &Directory) -> Result<bool, ReadError> {
        self.0.insert(path.to_vec(), Shape::Dir(entry.mode));
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        let shape = match &entry.kind {
            EntryKind::File(file) => Shape::File(entry.mode, file.digest),
            EntryKind::Symlink(target) => Shape::Link(target.clone()),
            EntryKind::Dir(_) => Shape::Dir(entry.mode),
        };
        self.0.insert(path.to_vec(), shape);
        Ok(())
    }
}

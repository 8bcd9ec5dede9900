//! Verifying versions: every node, every chunk, every whole file.

use forebay_format::{Directory, Entry, EntryKind, FileDigest, FileEntry, FrameKind, LogState, SnapshotId, Totals};

use super::{Findings, VerifyError, VerifyOptions, is_sampled, sampled};
use crate::cancel::Cancel;
use crate::content::read_file;
use crate::pieces::PieceReader;
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError, Repository, locate};
use crate::seen::SeenChunks;
use crate::sync::Mutex;
use crate::task;
use crate::tree::{entries, for_each_chunk, list_ids, push_name};

/// A file with its relative path.
type NamedFile = (Vec<u8>, FileEntry);

/// Reads one version whole.
pub(super) fn verify(
    repository: &mut Repository,
    version: SnapshotId,
    options: &VerifyOptions,
    progress: &Progress,
    cancel: &Cancel,
    findings: &Findings<'_>,
) -> Result<(), VerifyError> {
    let reader = repository.reader()?;
    let seed: [u8; 32] = repository.around.seed.stream("sample").bytes();
    let mut walk = Walk::new(&reader, cancel, findings);
    let Some(totals) = walk.enter(version)? else { return Ok(()) };
    Progress::add(&progress.files_total, sampled(totals.files, options.sample_percent));
    Progress::add(&progress.bytes_total, sampled(totals.bytes, options.sample_percent));
    let walk = Mutex::new(walk);
    let work = || -> Result<(), VerifyError> {
        let mut pieces = PieceReader::new(&reader);
        loop {
            let next = walk.lock().next_file()?;
            let Some((path, file)) = next else { return Ok(()) };
            if !is_sampled(&path, &seed, options.sample_percent) {
                continue;
            }
            if cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            verify_file(&mut pieces, &path, &file, findings)?;
            Progress::add(&progress.files, 1);
            Progress::add(&progress.bytes, file.size);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads.max(1)).map(|_| task::spawn_scoped(scope, "verify", work)).collect();
        threads.into_iter().map(task::join).collect::<Result<Vec<()>, _>>()
    })?;
    Ok(())
}

/// Checks that every chunk of every version of every ref has a place, after all places have been read.
pub(super) fn verify_manifests(
    repository: &mut Repository,
    state: &LogState,
    cancel: &Cancel,
    findings: &Findings<'_>,
) -> Result<(), VerifyError> {
    let reader = match repository.reader() {
        Ok(reader) => reader,
        // Segments that are damaged have been counted when they were read.
        Err(ReadError::Segment { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut walk = Walk::new(&reader, cancel, findings);
    for version in state.refs.iter().flat_map(|one| &one.versions) {
        if let Some(envelope) = version.envelope
            && let Err(error) = locate(reader.index(), envelope, FrameKind::Envelope)
        {
            let what = format!("signature of snapshot {}", version.snapshot);
            findings.bad_chunk(&what, FrameKind::Envelope, envelope, error)?;
        }
        if walk.enter(version.snapshot)?.is_none() {
            continue;
        }
        while let Some((path, file)) = walk.next_file()? {
            let name = String::from_utf8_lossy(&path);
            let listed = for_each_chunk::<VerifyError>(&reader, &file, |chunk| {
                if !walk.seen.insert(chunk.id) {
                    return Ok(());
                }
                match locate(reader.index(), chunk.id, FrameKind::Data) {
                    Ok(_place) => Ok(()),
                    Err(error) => findings.bad_chunk(&name, FrameKind::Data, chunk.id, error),
                }
            });
            match listed {
                // A damaged list of chunks hides the rest of the file.
                Err(VerifyError::Read(error)) => findings.bad(&name, FrameKind::List, error)?,
                other => other?,
            }
        }
    }
    Ok(())
}

/// The files of versions, one folder in memory at a time. What was met before, in this version or another, is left out with
/// everything below it.
struct Walk<'w, 'f> {
    reader: &'w ChunkReader,
    cancel: &'w Cancel,
    findings: &'w Findings<'f>,
    todo: Vec<(Vec<u8>, Directory)>,
    files: std::vec::IntoIter<NamedFile>,
    seen: SeenChunks,
}

impl<'w, 'f> Walk<'w, 'f> {
    fn new(reader: &'w ChunkReader, cancel: &'w Cancel, findings: &'w Findings<'f>) -> Self {
        let files = Vec::new().into_iter();
        Self { reader, cancel, findings, todo: Vec::new(), files, seen: SeenChunks::default() }
    }

    /// Goes on with a version; says what it holds, or `None` if its snapshot is damaged.
    fn enter(&mut self, version: SnapshotId) -> Result<Option<Totals>, VerifyError> {
        match self.reader.snapshot(version) {
            Ok(snapshot) => {
                self.todo.push((Vec::new(), snapshot.root));
                Ok(Some(snapshot.root.totals))
            }
            Err(error) => {
                let what = format!("snapshot {version}");
                self.findings.bad_chunk(&what, FrameKind::Snapshot, version.chunk_id(), error)?;
                Ok(None)
            }
        }
    }

    /// The next file with its relative path. Damaged folders are counted and left out.
    fn next_file(&mut self) -> Result<Option<NamedFile>, VerifyError> {
        loop {
            if let Some(file) = self.files.next() {
                return Ok(Some(file));
            }
            let Some((path, directory)) = self.todo.pop() else { return Ok(None) };
            if self.cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            if !self.seen.insert(directory.node) {
                continue;
            }
            match entries(self.reader, &path, &directory) {
                Ok(entries) => self.sort_in(entries, &path),
                Err(error) => {
                    let what = format!("folder {:?}", String::from_utf8_lossy(&path));
                    self.findings.bad(&what, FrameKind::Tree, error)?;
                }
            }
        }
    }

    fn sort_in(&mut self, entries: Vec<Entry>, above: &[u8]) {
        let mut files = Vec::new();
        for entry in entries {
            let mut path = above.to_vec();
            push_name(&mut path, &entry.name);
            match entry.kind {
                EntryKind::Dir(directory) => self.todo.push((path, directory)),
                EntryKind::File(file) => files.push((path, file)),
                EntryKind::Symlink(_) => {}
            }
        }
        self.files = files.into_iter();
    }
}

fn verify_file(
    pieces: &mut PieceReader<'_>,
    path: &[u8],
    file: &FileEntry,
    findings: &Findings<'_>,
) -> Result<(), VerifyError> {
    let name = String::from_utf8_lossy(path);
    let mut hasher = blake3::Hasher::new();
    let read = read_file::<ReadError>(pieces, file, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    });
    match read {
        Ok(()) if FileDigest::from(hasher.finalize()) == file.digest => count_good(pieces.chunks(), file, findings),
        Ok(()) => {
            findings.damaged.lock().others += 1;
            findings.corrupt(format!("{name}: its chunks are right, the whole file is not what the manifest says"));
            Ok(())
        }
        Err(error) => {
            let found = findings.damage();
            each_chunk(pieces.chunks(), &name, file, findings)?;
            // Every chunk is right on its own: what the manifest says of them is not.
            if findings.damage() == found { findings.bad(&name, FrameKind::Data, error) } else { Ok(()) }
        }
    }
}

fn count_good(reader: &ChunkReader, file: &FileEntry, findings: &Findings<'_>) -> Result<(), VerifyError> {
    for_each_chunk::<ReadError>(reader, file, |chunk| {
        findings.good(chunk.len.into());
        Ok(())
    })?;
    list_ids(reader, file)?.iter().for_each(|_| findings.good(0));
    Ok(())
}

/// A file that cannot be read whole: each chunk on its own, to say what is lost.
fn each_chunk(reader: &ChunkReader, name: &str, file: &FileEntry, findings: &Findings<'_>) -> Result<(), VerifyError> {
    let listed = for_each_chunk::<VerifyError>(reader, file, |chunk| match reader.chunk(chunk.id, FrameKind::Data) {
        Ok(plain) => {
            findings.good(plain.len() as u64);
            Ok(())
        }
        Err(error) => findings.bad_chunk(name, FrameKind::Data, chunk.id, error),
    });
    match listed {
        // A damaged list of chunks hides the rest of the file.
        Err(VerifyError::Read(error)) => findings.bad(name, FrameKind::List, error),
        other => other,
    }
}

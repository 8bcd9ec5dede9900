//! Verifying versions: every node, every chunk, every whole file.

use std::collections::BTreeSet;

use forebay_format::{ChunkId, Directory, Entry, EntryKind, FileDigest, FileEntry, FrameKind, LogState, SnapshotId};

use super::{Findings, VerifyError, VerifyOptions, is_sampled};
use crate::cancel::Cancel;
use crate::content::read_file;
use crate::pieces::PieceReader;
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError, Repository, locate};
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
    let Some(files) = files_of(&reader, version, cancel, findings, &mut BTreeSet::new())? else { return Ok(()) };
    let files: Vec<_> = files.into_iter().filter(|(path, _)| is_sampled(path, &seed, options.sample_percent)).collect();
    Progress::add(&progress.files_total, files.len() as u64);
    Progress::add(&progress.bytes_total, files.iter().map(|(_, file)| file.size).sum());
    let next = Mutex::new(files.iter());
    let work = || -> Result<(), VerifyError> {
        let mut pieces = PieceReader::new(&reader);
        loop {
            let Some((path, file)) = next.lock().next() else { return Ok(()) };
            if cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            verify_file(&mut pieces, path, file, findings)?;
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
    let mut seen = BTreeSet::new();
    for version in state.refs.iter().flat_map(|one| &one.versions) {
        if let Some(envelope) = version.envelope
            && let Err(error) = locate(reader.index(), envelope, FrameKind::Envelope)
        {
            findings.bad(&format!("signature of snapshot {}", version.snapshot), error)?;
        }
        let Some(files) = files_of(&reader, version.snapshot, cancel, findings, &mut seen)? else { continue };
        for (path, file) in files {
            let listed = for_each_chunk(&reader, &file, |chunk| {
                if seen.insert(chunk.id) {
                    locate(reader.index(), chunk.id, FrameKind::Data)?;
                }
                Ok::<_, ReadError>(())
            });
            if let Err(error) = listed {
                findings.bad(&String::from_utf8_lossy(&path), error)?;
            }
        }
    }
    Ok(())
}

/// Reads the whole manifest of a version. Damaged folders are counted and left out; `None` if the snapshot itself is.
fn files_of(
    reader: &ChunkReader,
    version: SnapshotId,
    cancel: &Cancel,
    findings: &Findings<'_>,
    seen: &mut BTreeSet<ChunkId>,
) -> Result<Option<Vec<NamedFile>>, VerifyError> {
    let snapshot = match reader.snapshot(version) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            findings.bad(&format!("snapshot {version}"), error)?;
            return Ok(None);
        }
    };
    let mut files = Vec::new();
    let mut todo: Vec<(Vec<u8>, Directory)> = vec![(Vec::new(), snapshot.root)];
    while let Some((path, directory)) = todo.pop() {
        if cancel.is_cancelled() {
            return Err(VerifyError::Interrupted);
        }
        // A folder that another version has too has been looked at with everything below it.
        if !seen.insert(directory.node) {
            continue;
        }
        match entries(reader, &path, &directory) {
            Ok(entries) => entries.into_iter().for_each(|entry| sort_in(entry, &path, &mut todo, &mut files)),
            Err(error) => findings.bad(&format!("folder {:?}", String::from_utf8_lossy(&path)), error)?,
        }
    }
    files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(Some(files))
}

fn sort_in(entry: Entry, above: &[u8], todo: &mut Vec<(Vec<u8>, Directory)>, files: &mut Vec<NamedFile>) {
    let mut path = above.to_vec();
    push_name(&mut path, &entry.name);
    match entry.kind {
        EntryKind::Dir(directory) => todo.push((path, directory)),
        EntryKind::File(file) => files.push((path, file)),
        EntryKind::Symlink(_) => {}
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
            Progress::add(&findings.corrupt, 1);
            findings
                .say("corrupt", format!("{name}: its chunks are right, the whole file is not what the manifest says"));
            Ok(())
        }
        Err(error) => {
            let found = findings.damage();
            each_chunk(pieces.chunks(), &name, file, findings)?;
            // Every chunk is right on its own: what the manifest says of them is not.
            if findings.damage() == found { findings.bad(&name, error) } else { Ok(()) }
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
        Err(error) => findings.bad(name, error),
    });
    match listed {
        // A damaged list of chunks hides the rest of the file.
        Err(VerifyError::Read(error)) => findings.bad(name, error),
        other => other,
    }
}

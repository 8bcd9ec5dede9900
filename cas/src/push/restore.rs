//! Storing again what a repository has lost, from wherever it still is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use forebay_format::{ChunkId, FrameKind, LogRecord};

use super::store::{Store, Storing};
use super::{PushError, RESTARTS_MAX, list, store_snapshot, store_tree};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError, Repository, empty_record};

/// Chunks by what they are.
pub(crate) type Chunks = BTreeSet<(FrameKind, ChunkId)>;

/// Where lost chunks may be.
#[derive(Debug, Clone)]
pub enum Donor {
    /// Another repository, or nodes. What comes from there is verified.
    Chunks(ChunkReader),
    /// A folder or file: it is read and cut as for a push, and what is not wanted is let go.
    Files(PathBuf),
}

/// Stores chunks again, whatever the index says of them; a log record makes them count. Returns those that no donor has.
///
/// # Errors
/// [`PushError`] if a donor fails other than by not having a chunk whole, or the repository cannot be written.
pub(crate) fn restore(
    repository: &mut Repository,
    wanted: &Chunks,
    donors: &[Donor],
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Chunks, PushError> {
    if wanted.is_empty() || donors.is_empty() {
        return Ok(wanted.clone());
    }
    for _ in 0..RESTARTS_MAX {
        match restore_once(repository, wanted, donors, threads, progress, cancel) {
            Err(PushError::Collected) => {}
            done => return done,
        }
    }
    Err(PushError::Collected)
}

fn restore_once(
    repository: &mut Repository,
    wanted: &Chunks,
    donors: &[Donor],
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Chunks, PushError> {
    let index = repository.index()?;
    let generation = repository.state().index_generation;
    let ids = repository.around.seed.stream("packs");
    let store = Store::new(repository, &index, &ids, Storing::Late).only(wanted.clone());
    let ((), stored) = store.run(|store| {
        for donor in donors {
            if store.left().is_empty() {
                break;
            }
            match donor {
                Donor::Chunks(reader) => read_chunks(reader, store, cancel)?,
                Donor::Files(path) => {
                    let scan = list(repository, std::slice::from_ref(path), &[], progress, cancel)?;
                    // Folders as they were when they were stored are their own manifests.
                    let tree = store_tree(repository, &index, store, scan, threads, progress, cancel)?;
                    store_snapshot(repository, store, &tree, BTreeMap::new())?;
                }
            }
        }
        Ok(())
    })?;
    let left = store.left();
    drop(store);
    if stored.segments.is_empty() {
        return Ok(left);
    }
    let (time, writer) = (repository.around.clock.now(), repository.around.writer.clone());
    let tool = repository.around.tool.clone();
    repository.append::<PushError>(|state| {
        if state.index_generation != generation {
            return Err(PushError::Collected);
        }
        let empty = empty_record(state, time, writer.clone(), tool.clone());
        Ok(LogRecord { segments: stored.segments.clone(), ..empty })
    })?;
    index.commit_segments(&stored.segments, &stored.packs)?;
    Ok(left)
}

/// Asks for each chunk by its name. One that is not there, or not whole, may be elsewhere.
fn read_chunks(reader: &ChunkReader, store: &Store<'_>, cancel: &Cancel) -> Result<(), PushError> {
    let (mut data, mut manifest) = (store.data_sink(), store.manifest_sink());
    for (kind, id) in store.left() {
        if cancel.is_cancelled() {
            return Err(PushError::Interrupted);
        }
        match reader.chunk(id, kind) {
            Ok(plain) if kind == FrameKind::Data => data.put(kind, id, &plain)?,
            Ok(plain) => manifest.put(kind, id, &plain)?,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(error.into()),
        };
    }
    data.finish()?;
    manifest.finish()
}

fn is_absent(error: &ReadError) -> bool {
    matches!(error.class(), ErrorClass::NotFound | ErrorClass::Corrupt)
}

//! Packs that are not as they were written.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_format::{Limits, LogState, PackId, Row};

use super::{ATTEMPTS_MAX, RepairError, quarantine_path};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::codec::Decoder;
use crate::gc::{FrameRuns, GcError, draw_boundary, footer_rows, whole_payload};
use crate::numbers::{index, length};
use crate::packer::{Packer, Stored, pack_path};
use crate::repository::{ChunkReader, Repository};
use crate::rng::Random;

/// What became of packs.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Those that no segment lists any more.
    pub(super) gone: BTreeSet<PackId>,
    /// Those in which a frame was missing or not whole.
    pub(super) damaged_chunks: BTreeSet<PackId>,
    /// How many were kept under another name; one that is missing is not.
    pub(super) quarantined: u64,
}

/// Replaces those of the packs that are not whole and whose every chunk can be read: from the pack itself, then it is copied,
/// or from elsewhere. The others stay as they are.
pub(super) fn replace(
    repository: &mut Repository,
    suspects: &BTreeSet<PackId>,
    cancel: &Cancel,
) -> Result<Replaced, RepairError> {
    for _ in 0..ATTEMPTS_MAX {
        if suspects.is_empty() {
            return Ok(Replaced::default());
        }
        repository.refresh()?;
        let generation = repository.state().index_generation;
        let random = repository.around.seed.stream("repair");
        let (replaced, copied) = copy(repository, suspects, &random, cancel)?;
        if replaced.gone.is_empty() {
            return Ok(replaced);
        }
        // What was copied holds as long as the generation does, whatever others commit.
        while repository.state().index_generation == generation {
            if cancel.is_cancelled() {
                return Err(RepairError::Interrupted);
            }
            let state = repository.state().clone();
            if draw_boundary(repository, &state, &replaced.gone, &BTreeMap::new(), &copied, &random)? {
                return Ok(replaced);
            }
            repository.refresh()?;
        }
    }
    Err(RepairError::Busy { attempts: ATTEMPTS_MAX })
}

/// Copies what is whole in packs that can go, and puts those into quarantine.
fn copy(
    repository: &mut Repository,
    suspects: &BTreeSet<PackId>,
    random: &Random,
    cancel: &Cancel,
) -> Result<(Replaced, Stored), RepairError> {
    let state = repository.state().clone();
    let rows = listed(repository, &state, suspects)?;
    let reader = repository.reader()?;
    let index = repository.index()?;
    let runtime = repository.around.runtime.clone();
    let ignore = |_: &crate::index::PendingPack| {};
    let mut packer = Packer::new(&repository.origin, &index, random, runtime, state.index_generation + 1, &ignore);
    let mut replaced = Replaced::default();
    for (pack, rows) in rows {
        if cancel.is_cancelled() {
            return Err(RepairError::Interrupted);
        }
        let bytes = read(repository, pack)?;
        let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
        let mut whole = Vec::with_capacity(rows.len());
        for row in &rows {
            whole.push(whole_payload(row, &bytes, &mut decoder, &mut buffer).is_some());
        }
        if whole.contains(&false) {
            replaced.damaged_chunks.insert(pack);
        } else if is_as_written(pack, &bytes, &rows) {
            continue;
        }
        let mut lost = rows.iter().zip(&whole).filter(|(_, whole)| !**whole).map(|(row, _)| row);
        if !lost.try_fold(true, |all, row| Ok::<_, RepairError>(all && is_elsewhere(&reader, row)?))? {
            continue;
        }
        let mut runs = FrameRuns::default();
        for row in rows.iter().zip(&whole).filter(|(_, whole)| **whole).map(|(row, _)| row) {
            let start = index_of(row) + forebay_format::FRAME_HEADER_LEN;
            runs.push(&row.header, &bytes[start..self::index(row.end())], &mut packer)?;
        }
        runs.finish(&mut packer)?;
        if !bytes.is_empty() {
            quarantine(repository, &pack_path(pack), bytes)?;
            replaced.quarantined += 1;
        }
        replaced.gone.insert(pack);
    }
    Ok((replaced, packer.finish()?))
}

fn index_of(row: &Row) -> usize {
    index(row.offset.into())
}

/// Rows of these packs as the segments have them, in the order of their frames.
fn listed(
    repository: &Repository,
    state: &LogState,
    packs: &BTreeSet<PackId>,
) -> Result<BTreeMap<PackId, Vec<Row>>, RepairError> {
    let mut listed: BTreeMap<PackId, Vec<Row>> = BTreeMap::new();
    for name in &state.segments {
        let segment = repository.segment(name)?;
        for (row, number) in &segment.rows {
            let pack = segment.packs[index((*number).into())].id;
            if packs.contains(&pack) {
                listed.entry(pack).or_default().push(*row);
            }
        }
    }
    for rows in listed.values_mut() {
        rows.sort_unstable_by_key(|row| row.offset);
        rows.dedup();
    }
    Ok(listed)
}

/// A pack's bytes; none if it is gone.
fn read(repository: &Repository, pack: PackId) -> Result<Bytes, RepairError> {
    let path = pack_path(pack);
    let reading = repository.origin.get(&path, Limits::DEFAULT.pack_bytes);
    match repository.around.runtime.block_on(reading) {
        Ok(bytes) => Ok(bytes),
        Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::Corrupt) => Ok(Bytes::new()),
        Err(error) => Err(GcError::from(error).into()),
    }
}

/// Whether footer and padding are right too.
fn is_as_written(pack: PackId, bytes: &[u8], rows: &[Row]) -> bool {
    let mut end = 0;
    let padding_is_zero = rows.iter().all(|row| {
        let padding = bytes.get(end..index_of(row)).unwrap_or_default();
        end = index(row.end());
        padding.iter().all(|byte| *byte == 0)
    });
    padding_is_zero && footer_rows(pack, bytes).is_some_and(|footer| footer == rows)
}

/// Whether a chunk whose frame here is not whole can be read all the same.
fn is_elsewhere(reader: &ChunkReader, row: &Row) -> Result<bool, RepairError> {
    match reader.chunk(row.id(), row.header.kind) {
        Ok(_plain) => Ok(true),
        Err(error) if error.class() == ErrorClass::Corrupt => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Keeps an object as it is under another name, once.
pub(super) fn quarantine(repository: &Repository, path: &str, bytes: Bytes) -> Result<(), RepairError> {
    let (origin, runtime) = (&repository.origin, &repository.around.runtime);
    let kept = quarantine_path(path);
    if runtime.block_on(origin.len(&kept))? != Some(length(bytes.len())) {
        runtime.block_on(origin.put(&kept, bytes.into()))?;
    }
    Ok(())
}

//! Index segments that cannot be read, made anew from the packs.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_format::{
    Boundary, Digest, Limits, LogState, PackId, Row, Segment, SegmentId, SegmentPack, SegmentRef, scan_frames,
};

use super::packs::quarantine;
use super::{ATTEMPTS_MAX, RepairError};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::gc::{GcError, SEGMENT_ROWS, append_boundary, footer_rows, objects};
use crate::numbers::length;
use crate::packer::{pack_path, segment_path};
use crate::progress::Warning;
use crate::repository::Repository;
use crate::rng::Random;

/// Segments in the place of those that cannot be read: of every pack that no other segment lists and that was not condemned, by
/// its own footer, or by its frames if the footer is damaged too. Packs of pushes that never ended come to be listed so; a
/// collection of garbage finds that nothing needs them. Returns how many segments were damaged.
pub(super) fn rebuild(repository: &mut Repository, cancel: &Cancel) -> Result<u64, RepairError> {
    for _ in 0..ATTEMPTS_MAX {
        repository.refresh()?;
        let state = repository.state().clone();
        let (damaged, listed) = look(repository, &state)?;
        if damaged.is_empty() {
            return Ok(0);
        }
        let random = repository.around.seed.stream("repair");
        let generation = state.index_generation + 1;
        let segments = list_anew(repository, &state, &listed, generation, &random, cancel)?;
        for segment in &damaged {
            keep(repository, segment)?;
        }
        let mut dropped: Vec<SegmentId> = damaged.iter().map(|segment| segment.id).collect();
        dropped.sort_unstable();
        let change = Boundary { generation, condemned: Vec::new(), dropped };
        if append_boundary(repository, &state, &change, &segments)? {
            return Ok(length(damaged.len()));
        }
    }
    Err(RepairError::Busy { attempts: ATTEMPTS_MAX })
}

/// Segments that cannot be read, and the packs of all others.
fn look(repository: &Repository, state: &LogState) -> Result<(Vec<SegmentRef>, BTreeSet<PackId>), RepairError> {
    let (mut damaged, mut listed) = (Vec::new(), BTreeSet::new());
    for name in &state.segments {
        match repository.segment(name) {
            Ok(segment) => listed.extend(segment.packs.iter().map(|pack| pack.id)),
            Err(error) if matches!(error.class(), ErrorClass::Corrupt | ErrorClass::NotFound) => {
                let message = format!("{}: {}", segment_path(name.generation, name.id), crate::chain(&error));
                repository.around.notices.warn(Warning { kind: "corrupt", message, path: None });
                damaged.push(*name);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((damaged, listed))
}

fn list_anew(
    repository: &Repository,
    state: &LogState,
    listed: &BTreeSet<PackId>,
    generation: u64,
    random: &Random,
    cancel: &Cancel,
) -> Result<Vec<SegmentRef>, RepairError> {
    let mut segments = Vec::new();
    let mut open = Segment { generation, packs: Vec::new(), rows: Vec::new() };
    for (name, object) in objects(repository, "pack", ".pack")? {
        let Ok(pack) = name.parse::<PackId>() else { continue };
        if listed.contains(&pack) || state.is_condemned(pack) {
            continue;
        }
        if cancel.is_cancelled() {
            return Err(RepairError::Interrupted);
        }
        let number = u32::try_from(open.packs.len()).expect("a segment lists few packs");
        open.packs.push(SegmentPack { id: pack, len: object.len });
        open.rows.extend(rows_of(repository, pack)?.into_iter().map(|row| (row, number)));
        if open.rows.len() >= SEGMENT_ROWS {
            write(repository, &mut open, random, &mut segments)?;
        }
    }
    write(repository, &mut open, random, &mut segments)?;
    Ok(segments)
}

/// What lies in a pack, each chunk once.
fn rows_of(repository: &Repository, pack: PackId) -> Result<Vec<Row>, RepairError> {
    let path = pack_path(pack);
    let reading = repository.origin.get(&path, Limits::DEFAULT.pack_bytes);
    let bytes = repository.around.runtime.block_on(reading)?;
    if let Some(rows) = footer_rows(pack, &bytes) {
        return Ok(rows);
    }
    let mut seen = BTreeSet::new();
    let mut rows = scan_frames(&bytes);
    rows.retain(|row| seen.insert(row.id()));
    Ok(rows)
}

fn write(
    repository: &Repository,
    open: &mut Segment,
    random: &Random,
    segments: &mut Vec<SegmentRef>,
) -> Result<(), RepairError> {
    let generation = open.generation;
    let mut full = std::mem::replace(open, Segment { generation, packs: Vec::new(), rows: Vec::new() });
    if full.rows.is_empty() {
        return Ok(());
    }
    let bytes = Bytes::from(full.encode());
    let id = SegmentId::from_bytes(random.bytes());
    let name = SegmentRef { id, generation, digest: Digest::of(&bytes), len: length(bytes.len()) };
    repository.around.runtime.block_on(repository.origin.put(&segment_path(generation, id), bytes.into()))?;
    segments.push(name);
    Ok(())
}

/// Keeps what is there of a damaged segment.
fn keep(repository: &Repository, segment: &SegmentRef) -> Result<(), RepairError> {
    let path = segment_path(segment.generation, segment.id);
    let reading = repository.origin.get(&path, Limits::DEFAULT.segment_bytes);
    match repository.around.runtime.block_on(reading) {
        Ok(bytes) => quarantine(repository, &path, bytes),
        Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::Corrupt) => Ok(()),
        Err(error) => Err(GcError::from(error).into()),
    }
}

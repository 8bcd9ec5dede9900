//! Copying what is alive out of packs that are mostly dead, and segments that list the rest.

use bytes::Bytes;
use forebay_format::{
    Digest, FRAME_HEADER_LEN, FrameHeader, FrameKind, Limits, LogState, PackFooter, PackId, Row, Segment, SegmentId,
    SegmentPack, SegmentRef,
};

use super::GcError;
use super::mark::Live;
use super::plan::PackUse;
use crate::codec::Decoder;
use crate::numbers::{index, length};
use crate::packer::{PackError, PackKind, Packer, segment_path};
use crate::progress::Warning;
use crate::repository::Repository;
use crate::rng::Random;
use crate::run::FrameRun;

/// Frames are handed on in runs of this size.
const RUN_BYTES: usize = 4 << 20;
/// Rows of a segment that is written anew, as many as a push writes.
pub(crate) const SEGMENT_ROWS: usize = 200_000;

/// Copies the live frames of a pack, as they are stored. `false` if anything in it is not as it should be: such a pack stays
/// where it is.
pub(super) fn copy_pack(
    repository: &Repository,
    pack: &PackUse,
    number: u32,
    live: &Live,
    packer: &mut Packer<'_>,
) -> Result<bool, GcError> {
    let path = crate::packer::pack_path(pack.id);
    let bytes = repository.around.runtime.block_on(repository.origin.get(&path, Limits::DEFAULT.pack_bytes))?;
    let Some(rows) = footer_rows(pack.id, &bytes) else {
        tell(repository, &path);
        return Ok(false);
    };
    let mut runs = FrameRuns::default();
    let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
    for row in rows.iter().filter(|row| live.is_best(row.id(), number)) {
        let Some(payload) = whole_payload(row, &bytes, &mut decoder, &mut buffer) else {
            tell(repository, &path);
            return Ok(false);
        };
        runs.push(&row.header, payload, packer)?;
    }
    runs.finish(packer)?;
    Ok(true)
}

/// Frames on their way into other packs, as they are stored.
#[derive(Default)]
pub(crate) struct FrameRuns([FrameRun; 2]);

impl FrameRuns {
    /// Adds a frame to the packs of its kind.
    pub(crate) fn push(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        packer: &mut Packer<'_>,
    ) -> Result<(), PackError> {
        let kind = if header.kind == FrameKind::Data { PackKind::Data } else { PackKind::Manifest };
        let run = &mut self.0[kind as usize];
        run.push(header, payload);
        if run.bytes.len() >= RUN_BYTES { packer.add(kind, std::mem::take(run)) } else { Ok(()) }
    }

    /// Hands on what is left.
    pub(crate) fn finish(self, packer: &mut Packer<'_>) -> Result<(), PackError> {
        for (kind, run) in [PackKind::Data, PackKind::Manifest].into_iter().zip(self.0) {
            if !run.is_empty() {
                packer.add(kind, run)?;
            }
        }
        Ok(())
    }
}

/// The rows of a pack by its own footer, in the order of the frames; `None` if the footer is damaged.
pub(crate) fn footer_rows(id: PackId, bytes: &[u8]) -> Option<Vec<Row>> {
    Some(PackFooter::of_pack(id, bytes).ok()?.rows_by_offset())
}

/// The payload of a frame that is what it was when it was stored.
pub(crate) fn whole_payload<'b>(
    row: &Row,
    bytes: &'b [u8],
    decoder: &mut Decoder,
    buffer: &mut Vec<u8>,
) -> Option<&'b [u8]> {
    let frame = bytes.get(index(row.offset.into())..index(row.end()))?;
    let is_it = FrameHeader::decode(frame).ok()? == row.header;
    let payload = &frame[FRAME_HEADER_LEN..];
    (is_it && decoder.check(&row.header, payload, buffer).is_ok()).then_some(payload)
}

fn tell(repository: &Repository, path: &str) {
    let message = format!("{path} is damaged: it is left as it is; `forebay verify` says what is lost");
    repository.around.notices.warn(Warning { kind: "damaged-pack", message, path: None });
}

/// Segments written for the generation to come, and those they stand for.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) dropped: Vec<SegmentId>,
    pub(super) segments: Vec<SegmentRef>,
    pub(super) bytes: u64,
}

/// Writes anew what is left of segments that list packs which go.
pub(super) fn rewrite_segments(
    repository: &Repository,
    state: &LogState,
    goes: &dyn Fn(PackId) -> bool,
    generation: u64,
    random: &Random,
) -> Result<Rewritten, GcError> {
    let mut rewritten = Rewritten::default();
    let mut open = Segment { generation, packs: Vec::new(), rows: Vec::new() };
    for name in &state.segments {
        let segment = repository.segment(name)?;
        if !segment.packs.iter().any(|pack| goes(pack.id)) {
            continue;
        }
        rewritten.dropped.push(name.id);
        let kept: Vec<Option<u32>> = segment.packs.iter().map(|pack| keep(pack, goes, &mut open.packs)).collect();
        let rows = segment.rows.into_iter().filter_map(|(row, pack)| Some((row, kept[index(pack.into())]?)));
        open.rows.extend(rows);
        if open.rows.len() >= SEGMENT_ROWS {
            write(repository, &mut open, random, &mut rewritten)?;
        }
    }
    write(repository, &mut open, random, &mut rewritten)?;
    rewritten.dropped.sort_unstable();
    Ok(rewritten)
}

fn keep(pack: &SegmentPack, goes: &dyn Fn(PackId) -> bool, packs: &mut Vec<SegmentPack>) -> Option<u32> {
    if goes(pack.id) {
        return None;
    }
    let known = packs.iter().position(|known| known.id == pack.id).unwrap_or_else(|| {
        packs.push(*pack);
        packs.len() - 1
    });
    Some(u32::try_from(known).expect("a segment lists few packs"))
}

fn write(
    repository: &Repository,
    open: &mut Segment,
    random: &Random,
    rewritten: &mut Rewritten,
) -> Result<(), GcError> {
    if open.packs.is_empty() {
        return Ok(());
    }
    // Two segments may have listed the same pack.
    open.rows.sort_unstable_by_key(|(row, pack)| (row.id(), *pack));
    open.rows.dedup();
    let bytes = Bytes::from(open.encode());
    let id = SegmentId::from_bytes(random.bytes());
    let generation = open.generation;
    let name = SegmentRef { id, generation, digest: Digest::of(&bytes), len: length(bytes.len()) };
    repository.around.runtime.block_on(repository.origin.put(&segment_path(generation, id), bytes.into()))?;
    rewritten.bytes += name.len;
    rewritten.segments.push(name);
    *open = Segment { generation, packs: Vec::new(), rows: Vec::new() };
    Ok(())
}

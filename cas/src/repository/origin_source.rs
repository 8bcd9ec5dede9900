//! Chunks out of an origin: locate, read, check, decode, verify.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_format::{ChunkId, FRAME_HEADER_LEN, FrameHeader, FrameKind, PATCH_DEPTH_MAX, PackId};
use tokio::runtime::Handle;

use super::{ReadError, decode_frame};
use crate::codec::Decoder;
use crate::index::{LocalIndex, Location};
use crate::numbers::{index, length};
use crate::origin::{Origin, OriginError};
use crate::packer::pack_path;
use crate::source::{ChunkSource, Frame, Traffic, Want};
use crate::sync::Mutex;

/// Manifest frames are read in blocks of this many bytes: a folder's nodes lie beside each other.
const BLOCK_BYTES: u64 = 256 << 10;
/// Blocks kept, 16 MiB in all.
const BLOCKS_MAX: usize = 64;
/// Frames this close are read in one range: skipping less costs more than it saves on any store.
const GAP_BYTES: u64 = 64 << 10;
/// Longest range.
const RANGE_BYTES: u64 = 4 << 20;

/// Reads chunks of one repository from its origin.
#[derive(Debug)]
pub struct OriginSource {
    origin: Arc<Origin>,
    index: Arc<LocalIndex>,
    runtime: Handle,
    blocks: Mutex<VecDeque<Block>>,
    data_bytes: AtomicU64,
}

/// A piece of a pack, newest last in the queue.
#[derive(Debug, Clone)]
struct Block {
    pack: PackId,
    start: u64,
    bytes: Bytes,
}

/// A range of one pack with the frames wanted of it.
struct Run {
    pack: PackId,
    range: Range<u64>,
    places: Vec<Location>,
}

impl OriginSource {
    pub(super) fn new(origin: Arc<Origin>, index: Arc<LocalIndex>, runtime: Handle) -> Self {
        Self { origin, index, runtime, blocks: Mutex::default(), data_bytes: AtomicU64::new(0) }
    }

    /// Reads bytes of a pack. [`ReadError::Pack`] names `id` if the pack is gone or too short.
    fn pack_range(&self, id: ChunkId, pack: PackId, range: Range<u64>) -> Result<Bytes, ReadError> {
        let path = pack_path(pack);
        self.runtime.block_on(self.origin.get_range(&path, range)).map_err(|source| match source {
            OriginError::NotFound { .. } | OriginError::Short { .. } | OriginError::TooLarge { .. } => {
                ReadError::Pack { id, pack: path, source: Box::new(source) }
            }
            source => source.into(),
        })
    }

    fn read_place(&self, place: &Location) -> Result<Vec<u8>, ReadError> {
        let (range, id) = (u64::from(place.row.offset)..place.row.end(), place.row.id());
        let frame = match place.row.header.kind {
            FrameKind::Tree | FrameKind::List => self.block_range(id, place.pack, range)?,
            _ => self.pack_range(id, place.pack, range)?,
        };
        let header = &place.row.header;
        let base = header.base.map(|base| self.base(base, header.depth)).transpose()?;
        let mut buffer = Vec::new();
        Ok(decode_frame(place.pack, &place.row, &frame, base.as_deref(), &mut Decoder::new(), &mut buffer)?.to_vec())
    }

    /// One chunk from any place that has it whole, by a chain of bases shorter than `depth`.
    fn read_chunk(&self, id: ChunkId, kind: FrameKind, depth: u8) -> Result<Vec<u8>, ReadError> {
        locate(&self.index, id, kind)?;
        let mut first_error = None;
        let fits = |place: &&Location| place.row.header.kind == kind && place.row.header.depth < depth;
        for place in self.index.locate(id)?.iter().filter(fits) {
            match self.read_place(place) {
                Ok(plain) => return Ok(plain),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or(ReadError::Missing { id, kind }))
    }

    /// Reads through the block cache; a frame longer than a block is read alone.
    fn block_range(&self, id: ChunkId, pack: PackId, range: Range<u64>) -> Result<Bytes, ReadError> {
        if let Some(bytes) = self.cached(pack, &range) {
            return Ok(bytes);
        }
        let pack_len = self.index.pack_len(pack)?.unwrap_or(range.end);
        let end = (range.start + BLOCK_BYTES).min(pack_len).max(range.end);
        let block = Block { pack, start: range.start, bytes: self.pack_range(id, pack, range.start..end)? };
        let frame = block.bytes.slice(..index(range.end - range.start));
        let mut blocks = self.blocks.lock();
        if blocks.len() == BLOCKS_MAX {
            blocks.pop_front();
        }
        blocks.push_back(block);
        Ok(frame)
    }

    fn cached(&self, pack: PackId, range: &Range<u64>) -> Option<Bytes> {
        let blocks = self.blocks.lock();
        let block = blocks.iter().rev().find(|block| {
            block.pack == pack && block.start <= range.start && range.end <= block.start + length(block.bytes.len())
        })?;
        let from = index(range.start - block.start);
        Some(block.bytes.slice(from..from + index(range.end - range.start)))
    }
}

impl ChunkSource for OriginSource {
    fn frames(
        &self,
        kind: FrameKind,
        wants: &[Want],
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let places = wants.iter().map(|want| locate(&self.index, want.id, kind)).collect::<Result<Vec<_>, _>>()?;
        for run in runs(places) {
            let bytes = match self.pack_range(run.places[0].row.id(), run.pack, run.range.clone()) {
                Ok(bytes) => bytes,
                // The pack is damaged or gone: each chunk may be found elsewhere, one by one.
                Err(ReadError::Pack { .. }) => continue,
                Err(error) => return Err(error),
            };
            for place in &run.places {
                let start = index(u64::from(place.row.offset) - run.range.start);
                let end = index(place.row.end() - run.range.start);
                if kind == FrameKind::Data {
                    self.data_bytes.fetch_add(place.row.header.plain_len.into(), Ordering::Relaxed);
                }
                // The header on disk counts, not the row: they differ if the pack is damaged.
                let header = match FrameHeader::decode(&bytes[start..end]) {
                    Ok(header) if header == place.row.header => header,
                    _ => continue,
                };
                if take(Frame { header, payload: bytes.slice(start + FRAME_HEADER_LEN..end) }).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn chunk(&self, id: ChunkId, kind: FrameKind) -> Result<Vec<u8>, ReadError> {
        self.read_chunk(id, kind, PATCH_DEPTH_MAX + 1)
    }

    fn base(&self, id: ChunkId, depth: u8) -> Result<Vec<u8>, ReadError> {
        self.read_chunk(id, FrameKind::Data, depth)
    }

    fn has(&self, id: ChunkId, kind: FrameKind) -> Result<bool, ReadError> {
        match locate(&self.index, id, kind) {
            Ok(_) => Ok(true),
            Err(ReadError::Missing { .. } | ReadError::Kind { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            wire_bytes: self.origin.read_bytes(),
            origin_bytes: self.data_bytes.load(Ordering::Relaxed),
            // A store's client tries again by itself and does not say how much.
            retried_bytes: self.origin.folder().is_some().then_some(0),
            requests: Some(self.origin.requests()),
            ..Traffic::default()
        }
    }
}

/// A place of a chunk of this kind, one of those with the shortest chain of bases.
pub(crate) fn locate(index: &LocalIndex, id: ChunkId, kind: FrameKind) -> Result<Location, ReadError> {
    let places = index.locate(id)?;
    let Some(first) = places.first() else { return Err(ReadError::Missing { id, kind }) };
    places.iter().find(|place| place.row.header.kind == kind).copied().ok_or(ReadError::Kind {
        id,
        found: first.row.header.kind,
        wanted: kind,
    })
}

/// Sorts places by pack and offset and joins neighbours.
fn runs(mut places: Vec<Location>) -> Vec<Run> {
    places.sort_unstable_by_key(|place| (place.pack, place.row.offset));
    let mut runs: Vec<Run> = Vec::new();
    for place in places {
        let (start, end) = (u64::from(place.row.offset), place.row.end());
        match runs.last_mut() {
            Some(run)
                if run.pack == place.pack
                    && start <= run.range.end + GAP_BYTES
                    && end - run.range.start <= RANGE_BYTES =>
            {
                run.range.end = run.range.end.max(end);
                run.places.push(place);
            }
            _ => runs.push(Run { pack: place.pack, range: start..end, places: vec![place] }),
        }
    }
    runs
}

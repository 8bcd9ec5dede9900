//! Reading chunks: locate, read, check, decode, verify.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{
    ChunkId, FRAME_HEADER_LEN, FrameHeader, FrameKind, ListNode, PackId, Row, Snapshot, SnapshotId, Totals, TreeNode,
};
use tokio::runtime::Handle;

use super::ReadError;
use crate::codec::Decoder;
use crate::index::{LocalIndex, Location};
use crate::numbers::{index, length};
use crate::origin::{Origin, OriginError};
use crate::packer::pack_path;
use crate::sync::Mutex;

/// Manifest frames are read in blocks of this many bytes: a folder's nodes lie beside each other.
const BLOCK_BYTES: u64 = 256 << 10;
/// Blocks kept, 16 MiB in all.
const BLOCKS_MAX: usize = 64;

/// Reads chunks of one repository. Blocking; shared by reference or clone.
#[derive(Debug, Clone)]
pub struct ChunkReader {
    origin: Arc<Origin>,
    index: Arc<LocalIndex>,
    runtime: Handle,
    blocks: Arc<Mutex<VecDeque<Block>>>,
}

/// A piece of a pack, newest last in the queue.
#[derive(Debug, Clone)]
struct Block {
    pack: PackId,
    start: u64,
    bytes: Bytes,
}

impl ChunkReader {
    pub(super) fn new(origin: Arc<Origin>, index: Arc<LocalIndex>, runtime: Handle) -> Self {
        Self { origin, index, runtime, blocks: Arc::default() }
    }

    /// The index it looks chunks up in.
    #[must_use]
    pub const fn index(&self) -> &Arc<LocalIndex> {
        &self.index
    }

    /// A place of a chunk of this kind.
    ///
    /// # Errors
    /// [`ReadError::Missing`] or [`ReadError::Kind`].
    pub fn locate(&self, id: ChunkId, kind: FrameKind) -> Result<Location, ReadError> {
        let places = self.index.locate(id)?;
        let Some(first) = places.first() else { return Err(ReadError::Missing { id, kind }) };
        places.iter().find(|place| place.row.header.kind == kind).copied().ok_or(ReadError::Kind {
            id,
            found: first.row.header.kind,
            wanted: kind,
        })
    }

    /// Reads and verifies one chunk, from any of its places that has it whole.
    ///
    /// # Errors
    /// [`ReadError`] of the first place, if no place has it.
    pub fn chunk(&self, id: ChunkId, kind: FrameKind) -> Result<Vec<u8>, ReadError> {
        self.locate(id, kind)?;
        let mut first_error = None;
        for place in self.index.locate(id)?.iter().filter(|place| place.row.header.kind == kind) {
            match self.read_place(place) {
                Ok(plain) => return Ok(plain),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or(ReadError::Missing { id, kind }))
    }

    /// Reads bytes of a pack.
    ///
    /// # Errors
    /// [`ReadError::Pack`] naming `id` if the pack is gone or too short.
    pub fn pack_range(&self, id: ChunkId, pack: PackId, range: Range<u64>) -> Result<Bytes, ReadError> {
        let path = pack_path(pack);
        self.runtime.block_on(self.origin.get_range(&path, range)).map_err(|source| match source {
            OriginError::NotFound { .. } | OriginError::Short { .. } | OriginError::TooLarge { .. } => {
                ReadError::Pack { id, pack: path, source: Box::new(source) }
            }
            source => source.into(),
        })
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`ReadError`] if it is missing or damaged.
    pub fn snapshot(&self, id: SnapshotId) -> Result<Snapshot, ReadError> {
        let (id, kind) = (id.chunk_id(), FrameKind::Snapshot);
        Snapshot::decode(&self.chunk(id, kind)?).map_err(|source| ReadError::Content { id, kind, source })
    }

    /// Reads a tree node that holds these totals.
    ///
    /// # Errors
    /// [`ReadError`] if it is missing or damaged.
    pub fn tree(&self, id: ChunkId, totals: Totals) -> Result<TreeNode, ReadError> {
        let kind = FrameKind::Tree;
        TreeNode::decode(&self.chunk(id, kind)?, totals).map_err(|source| ReadError::Content { id, kind, source })
    }

    /// Reads a list of chunks that holds so many content bytes.
    ///
    /// # Errors
    /// [`ReadError`] if it is missing or damaged.
    pub fn list(&self, id: ChunkId, bytes: u64) -> Result<ListNode, ReadError> {
        let kind = FrameKind::List;
        ListNode::decode(&self.chunk(id, kind)?, bytes).map_err(|source| ReadError::Content { id, kind, source })
    }

    fn read_place(&self, place: &Location) -> Result<Vec<u8>, ReadError> {
        let (range, id) = (u64::from(place.row.offset)..place.row.end(), place.row.id());
        let frame = match place.row.header.kind {
            FrameKind::Tree | FrameKind::List => self.block_range(id, place.pack, range)?,
            _ => self.pack_range(id, place.pack, range)?,
        };
        let mut plain = Vec::new();
        decode_frame(place.pack, &place.row, &frame, &mut Decoder::new(), &mut plain)?;
        Ok(plain)
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

/// Checks a frame against its row and decodes it into `plain`, verified against its id.
///
/// # Errors
/// [`ReadError::Frame`] if the bytes are not that frame, [`ReadError::Codec`] if the payload is damaged.
pub fn decode_frame(
    pack: PackId,
    row: &Row,
    frame: &[u8],
    decoder: &mut Decoder,
    plain: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let header = FrameHeader::decode(frame).ok().filter(|header| *header == row.header);
    let Some(header) = header else {
        return Err(ReadError::Frame { id: row.id(), pack: pack_path(pack), offset: row.offset.into() });
    };
    decoder.decode(&header, &frame[FRAME_HEADER_LEN..], plain)?;
    Ok(())
}

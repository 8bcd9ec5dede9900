//! Reading chunks: ask a source, check, decode, verify.

use std::sync::Arc;

use forebay_format::{
    ChunkId, FRAME_HEADER_LEN, FrameHeader, FrameKind, ListNode, PackId, Row, Snapshot, SnapshotId, Totals, TreeNode,
};

use super::ReadError;
use super::ahead::Ahead;
use crate::codec::Decoder;
use crate::index::LocalIndex;
use crate::packer::pack_path;
use crate::source::ChunkSource;

/// Reads chunks of one repository, wherever they come from. Blocking; shared by reference or clone.
#[derive(Debug, Clone)]
pub struct ChunkReader {
    source: Arc<dyn ChunkSource>,
    index: Arc<LocalIndex>,
    ahead: Arc<Ahead>,
}

impl ChunkReader {
    /// A reader of what a source has. The index keeps what is known of files on this machine.
    #[must_use]
    pub fn new(source: Arc<dyn ChunkSource>, index: Arc<LocalIndex>) -> Self {
        Self { source, index, ahead: Arc::default() }
    }

    /// Where chunks come from.
    #[must_use]
    pub const fn source(&self) -> &Arc<dyn ChunkSource> {
        &self.source
    }

    /// What is known of files on this machine.
    #[must_use]
    pub const fn index(&self) -> &Arc<LocalIndex> {
        &self.index
    }

    /// Reads and verifies one chunk, from any of its places that has it whole.
    ///
    /// # Errors
    /// [`ReadError`] of the first place, if no place has it.
    pub fn chunk(&self, id: ChunkId, kind: FrameKind) -> Result<Vec<u8>, ReadError> {
        match self.ahead.take(id, kind) {
            Some(plain) => Ok(plain),
            None => self.source.chunk(id, kind),
        }
    }

    /// Reads and verifies a chunk that another is a patch of, by a chain of bases shorter than `depth`: chains that fall
    /// have an end.
    ///
    /// # Errors
    /// As for [`Self::chunk`].
    pub fn base(&self, id: ChunkId, depth: u8) -> Result<Vec<u8>, ReadError> {
        self.source.base(id, depth)
    }

    /// Manifest nodes that were read before somebody asked for them; only of a distant source.
    pub(crate) fn ahead(&self) -> Option<&Ahead> {
        self.source.is_distant().then_some(&*self.ahead)
    }

    /// Whether a chunk is there.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be found out.
    pub fn has(&self, id: ChunkId, kind: FrameKind) -> Result<bool, ReadError> {
        self.source.has(id, kind)
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
}

/// Checks a frame against its row and decodes it, verified against its id; see [`Decoder::decode`].
///
/// # Errors
/// [`ReadError::Frame`] if the bytes are not that frame, [`ReadError::Codec`] if the payload is damaged.
pub fn decode_frame<'b>(
    pack: PackId,
    row: &Row,
    frame: &'b [u8],
    base: Option<&[u8]>,
    decoder: &mut Decoder,
    buffer: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadError> {
    if FrameHeader::decode(frame).ok().is_none_or(|header| header != row.header) {
        return Err(ReadError::Frame { id: row.id(), pack: pack_path(pack), offset: row.offset.into() });
    }
    Ok(decoder.decode(&row.header, &frame[FRAME_HEADER_LEN..], base, buffer)?)
}

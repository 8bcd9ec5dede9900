//! Where chunks come from: an origin read by this process, or nodes over the network.

use std::fmt::Debug;
use std::ops::ControlFlow;

use bytes::Bytes;
use forebay_format::{ChunkId, FrameHeader, FrameKind};

use crate::repository::ReadError;

/// A frame as it is stored and as it travels. Its payload is not decoded and not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the frame says about itself.
    pub header: FrameHeader,
    /// The stored bytes.
    pub payload: Bytes,
}

/// A chunk that is wanted, with the plain length that the manifest gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Want {
    /// The chunk.
    pub id: ChunkId,
    /// Its plain length in bytes; 0 if it is not known.
    pub len: u32,
}

/// What has moved through a source so far. Plain bytes are those of data chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes on the wire: bodies of an object store's answers, or UDP payload both ways.
    pub wire_bytes: u64,
    /// Plain bytes that came out of a cache on this machine.
    pub cache_bytes: u64,
    /// Plain bytes that a node of the site had already.
    pub site_bytes: u64,
    /// Plain bytes that crossed the uplink for this process.
    pub gateway_bytes: u64,
    /// Plain bytes that this process read from the origin.
    pub origin_bytes: u64,
    /// Bytes of frames that came and were of no use; `None` where they cannot be told.
    pub retried_bytes: Option<u64>,
    /// Requests to the origin by this process, retries of the store's client not counted; `None` where nodes make them.
    pub requests: Option<u64>,
}

impl Traffic {
    /// What has moved since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            wire_bytes: self.wire_bytes - before.wire_bytes,
            cache_bytes: self.cache_bytes - before.cache_bytes,
            site_bytes: self.site_bytes - before.site_bytes,
            gateway_bytes: self.gateway_bytes - before.gateway_bytes,
            origin_bytes: self.origin_bytes - before.origin_bytes,
            retried_bytes: self.retried_bytes.zip(before.retried_bytes).map(|(now, then)| now - then),
            requests: self.requests.zip(before.requests).map(|(now, then)| now - then),
        }
    }
}

/// A source of chunks. Its calls block; they are shared by threads.
pub trait ChunkSource: Debug + Send + Sync {
    /// Hands the frames of wanted chunks to `take`, in whatever order is cheapest, until it breaks off. A frame can be
    /// damaged, and one can be left out: the caller then asks for that chunk by [`Self::chunk`]. One can be a patch: the
    /// caller has its base, or asks for it in the same way.
    ///
    /// # Errors
    /// [`ReadError`] if nothing more is to be had; what was taken before stays good.
    fn frames(
        &self,
        kind: FrameKind,
        wants: &[Want],
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<(), ReadError>;

    /// One chunk, decoded and verified, from any place that has it whole.
    ///
    /// # Errors
    /// [`ReadError`] of the first place, if none has it.
    fn chunk(&self, id: ChunkId, kind: FrameKind) -> Result<Vec<u8>, ReadError>;

    /// A data chunk as [`Self::chunk`] reads it, by way of frames that lie less than `depth` bases deep only.
    ///
    /// # Errors
    /// As for [`Self::chunk`].
    fn base(&self, id: ChunkId, depth: u8) -> Result<Vec<u8>, ReadError>;

    /// Whether a chunk is there, without reading it where that can be told.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be found out.
    fn has(&self, id: ChunkId, kind: FrameKind) -> Result<bool, ReadError> {
        match self.chunk(id, kind) {
            Ok(_) => Ok(true),
            Err(ReadError::Missing { .. } | ReadError::Kind { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an answer takes a while, so that it pays to ask for many chunks at once.
    fn is_distant(&self) -> bool {
        false
    }

    /// Whether somebody pays for what is read, so that [`Self::reserve`] is worth the work of listing it.
    fn bills(&self) -> bool {
        false
    }

    /// Says what is going to be read, before it is: who pays can refuse it as a whole. A source that bills nobody does
    /// nothing.
    ///
    /// # Errors
    /// [`ReadError`] if it is refused.
    fn reserve(&self, wants: &[Want]) -> Result<(), ReadError> {
        let _nobody_pays = wants;
        Ok(())
    }

    /// Has chunks kept near, without reading them here; `moved` is told of the plain bytes done. Returns the stored bytes
    /// that moved for it. A source that keeps nothing does nothing.
    ///
    /// # Errors
    /// [`ReadError`] if they are not all there in the end.
    fn warm(&self, kind: FrameKind, wants: &[Want], moved: &mut (dyn FnMut(u64) + Send)) -> Result<u64, ReadError> {
        let _nothing_is_kept = (kind, wants, moved);
        Ok(0)
    }

    /// What has moved so far.
    fn traffic(&self) -> Traffic;
}

//! Reading frames that lie beside each other together.

use std::sync::Arc;

use bytes::Bytes;
use forebay_cas::numbers::index;
use forebay_cas::source::Frame;
use forebay_format::{ChunkId, FRAME_HEADER_LEN, FrameHeader};

use super::extent::Extent;
use super::places::Place;

/// Most bytes of several frames read together: they are still in the processor's cache when they are encrypted.
const SPAN_BYTES: u64 = 256 << 10;

/// Neighbours in one extent, at the time they were looked up.
#[derive(Debug)]
pub struct Span {
    pub(super) extent: Arc<Extent>,
    /// [`Extent::punched`] at that time.
    pub(super) punched: u64,
    /// In the order in which they lie; at least one.
    pub(super) places: Vec<(ChunkId, Place)>,
}

impl Span {
    /// The chunks in it.
    pub fn ids(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.places.iter().map(|(id, _)| *id)
    }

    pub(super) fn start(&self) -> u64 {
        self.places[0].1.offset
    }

    /// Bytes from the first header to the end of the last payload.
    pub(super) fn len(&self) -> usize {
        let last = &self.places[self.places.len() - 1].1;
        index(last.offset + last.frame_len() - self.start())
    }

    /// Whether a frame can be read with those that are in it.
    pub(super) fn takes(&self, place: &Place) -> bool {
        let last = &self.places[self.places.len() - 1].1;
        place.extent == last.extent && place.offset == last.end() && place.end() - self.start() <= SPAN_BYTES
    }

    /// Takes the bytes of the span apart; each part is `None` if it is no frame of that chunk and length.
    pub(super) fn frames(&self, bytes: &Bytes) -> impl Iterator<Item = (ChunkId, &Place, Option<Frame>)> {
        self.places.iter().map(|(id, place)| {
            let at = index(place.offset - self.start());
            let bytes = bytes.slice(at..at + index(place.frame_len()));
            let header = FrameHeader::decode(&bytes).ok();
            let header = header.filter(|header| header.id == *id && header.stored_len == place.stored_len);
            (*id, place, header.map(|header| Frame { header, payload: bytes.slice(FRAME_HEADER_LEN..) }))
        })
    }
}

/// What a look for several chunks found.
#[derive(Debug, Default)]
pub struct Located {
    /// Those that are here, in the order in which they lie.
    pub spans: Vec<Span>,
    /// Those that are not.
    pub missing: Vec<ChunkId>,
}

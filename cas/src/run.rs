//! Frames laid out one behind the other, ready to become part of a pack.

use forebay_format::{Codec, FRAME_HEADER_LEN, FrameHeader, RAW_ALIGNMENT, RAW_ALIGNMENT_FROM, Row};

use crate::numbers::index;

/// A run of frames whose offsets count from its own start. A pack places runs at multiples of [`RAW_ALIGNMENT`], so that
/// payloads aligned in the run are aligned in the pack.
#[derive(Debug, Default)]
pub struct FrameRun {
    /// Headers, payloads and zero padding.
    pub bytes: Vec<u8>,
    /// One row a frame, in order.
    pub rows: Vec<Row>,
}

impl FrameRun {
    /// An empty run with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), rows: Vec::new() }
    }

    /// Appends a frame; large raw payloads are aligned.
    ///
    /// # Panics
    /// If the run grows over 4 GiB; its owner hands it on after a few MiB.
    pub fn push(&mut self, header: &FrameHeader, payload: &[u8]) {
        if header.codec == Codec::Raw && header.plain_len >= RAW_ALIGNMENT_FROM {
            let start = (self.bytes.len() + FRAME_HEADER_LEN).next_multiple_of(index(RAW_ALIGNMENT.into()));
            self.bytes.resize(start - FRAME_HEADER_LEN, 0);
        }
        let offset = u32::try_from(self.bytes.len()).expect("runs are a few MiB long");
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(payload);
        self.rows.push(Row { offset, header: *header });
    }

    /// Whether there are no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

//! Plain bytes to payload and back, with the proof that the way back works.

use std::fmt;

use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, Limits, StoredId};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, DParameter};

use crate::class::{Classify, ErrorClass};
use crate::numbers::index;

/// zstd level for content. Level 1 packs text within a few per cent of level 3 at twice the speed.
const LEVEL: i32 = 1;
/// A payload has to be smaller than the plain bytes by more than one part in this, or it is stored raw.
const MIN_GAIN: usize = 64;
/// Bytes sampled to find out whether a chunk compresses at all.
const SAMPLE: usize = 4 << 10;
/// Chunks below this are not sampled but tried.
const SAMPLE_FROM: usize = 4 * SAMPLE;
/// Largest zstd window accepted, as a power of two: no chunk is longer than 16 MiB = 2^24.
const WINDOW_LOG_MAX: u32 = 24;

/// A payload that does not decode to what its header says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The payload is not what was stored.
    #[error("chunk {id} is damaged: its stored bytes do not match their checksum")]
    Stored {
        /// The chunk.
        id: ChunkId,
    },
    /// The decoder refuses the payload, or it decodes to another length.
    #[error("chunk {id} is damaged or forged: it does not decode to {plain_len} bytes")]
    Decode {
        /// The chunk.
        id: ChunkId,
        /// Plain bytes the header announces.
        plain_len: u32,
    },
    /// It decodes to other bytes.
    #[error("chunk {id} is damaged or forged: it decodes to other bytes")]
    Id {
        /// The chunk.
        id: ChunkId,
    },
    /// What the encoder wrote did not come back: the encoder or the memory is broken, and nothing was stored.
    #[error("chunk {id} did not survive a round trip through its encoder; this machine's memory may be faulty")]
    RoundTrip {
        /// The chunk.
        id: ChunkId,
    },
}

impl CodecError {
    /// The chunk it is about.
    #[must_use]
    pub const fn chunk(&self) -> ChunkId {
        match self {
            Self::Stored { id } | Self::Decode { id, .. } | Self::Id { id } | Self::RoundTrip { id } => *id,
        }
    }
}

impl Classify for CodecError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::RoundTrip { .. } => ErrorClass::Failed,
            _ => ErrorClass::Corrupt,
        }
    }
}

/// Encodes chunks. Holds the encoder's tables and scratch memory; one a thread.
pub struct Encoder {
    compressor: Compressor<'static>,
    decoder: Decoder,
    payload: Vec<u8>,
    check: Vec<u8>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder at the level that content is stored with.
    ///
    /// # Panics
    /// If there is no memory for zstd's tables.
    #[must_use]
    pub fn new() -> Self {
        let compressor = Compressor::new(LEVEL).expect("the level is one zstd has");
        Self { compressor, decoder: Decoder::new(), payload: Vec::new(), check: Vec::new() }
    }

    /// Chooses a codec for `plain`, whose id the caller has computed, and hands out header and payload. The payload has
    /// been decoded again and compared before it is handed out.
    ///
    /// # Errors
    /// [`CodecError::RoundTrip`] if it does not come back.
    ///
    /// # Panics
    /// If `plain` is longer than [`Limits::chunk_bytes`].
    pub fn encode<'a>(
        &'a mut self,
        kind: FrameKind,
        id: ChunkId,
        plain: &'a [u8],
    ) -> Result<(FrameHeader, &'a [u8]), CodecError> {
        let plain_len = u32::try_from(plain.len()).expect("chunks are cut to a maximum far below 4 GiB");
        assert!(plain_len <= Limits::DEFAULT.chunk_bytes, "chunks are cut to at most the limit");
        let raw = FrameHeader {
            kind,
            codec: Codec::Raw,
            depth: 0,
            id,
            base: None,
            stored_id: StoredId::from_bytes(*id.as_bytes()),
            plain_len,
            stored_len: plain_len,
        };
        if !self.compresses(plain) || !self.compress(plain) {
            return Ok((raw, plain));
        }
        let header = FrameHeader {
            codec: Codec::Zstd,
            stored_id: StoredId::of(&self.payload),
            stored_len: u32::try_from(self.payload.len()).expect("shorter than the plain bytes"),
            ..raw
        };
        self.decoder.decompress(id, plain_len, &self.payload, &mut self.check).ok();
        if self.check != plain {
            return Err(CodecError::RoundTrip { id });
        }
        Ok((header, &self.payload))
    }

    /// Whether a sample from the middle gets smaller; short chunks are worth trying whole.
    fn compresses(&mut self, plain: &[u8]) -> bool {
        if plain.len() < SAMPLE_FROM {
            return true;
        }
        let middle = plain.len() / 2;
        [&plain[..SAMPLE], &plain[middle..middle + SAMPLE]].into_iter().any(|sample| self.compress(sample))
    }

    /// Compresses into `self.payload`; says whether that gained enough.
    fn compress(&mut self, plain: &[u8]) -> bool {
        self.payload.resize(zstd_safe::compress_bound(plain.len()), 0);
        let Ok(len) = self.compressor.compress_to_buffer(plain, &mut self.payload[..]) else {
            return false;
        };
        self.payload.truncate(len);
        len < plain.len() - plain.len() / MIN_GAIN
    }
}

/// Decodes payloads. Holds the decoder's tables; one a thread.
pub struct Decoder {
    decompressor: Decompressor<'static>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder that refuses windows over 16 MiB.
    ///
    /// # Panics
    /// If there is no memory for zstd's tables.
    #[must_use]
    pub fn new() -> Self {
        let mut decompressor = Decompressor::new().expect("zstd's decoder needs a few KiB");
        decompressor
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .expect("the window limit is one zstd takes");
        Self { decompressor }
    }

    /// Decodes a payload and verifies every byte against the id. Returns the payload itself where it is the plain bytes,
    /// else `buffer`, which takes no more memory than the plain length the header announces, which its decoder has
    /// bounded.
    ///
    /// # Errors
    /// [`CodecError`] says which check fails; `buffer` must not be used then.
    pub fn decode<'b>(
        &mut self,
        header: &FrameHeader,
        payload: &'b [u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], CodecError> {
        let id = header.id;
        if header.stored_len as usize != payload.len() {
            return Err(CodecError::Stored { id });
        }
        let plain = match header.codec {
            Codec::Raw => payload,
            Codec::Zstd => {
                if StoredId::of(payload) != header.stored_id {
                    return Err(CodecError::Stored { id });
                }
                self.decompress(id, header.plain_len, payload, buffer)?;
                &**buffer
            }
        };
        if ChunkId::of(plain) == id { Ok(plain) } else { Err(CodecError::Id { id }) }
    }

    /// Decodes one zstd frame that declares exactly `plain_len` bytes and has nothing behind it.
    fn decompress(
        &mut self,
        id: ChunkId,
        plain_len: u32,
        payload: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let error = CodecError::Decode { id, plain_len };
        let declared = zstd_safe::get_frame_content_size(payload).ok().flatten();
        let one_frame = zstd_safe::find_frame_compressed_size(payload) == Ok(payload.len());
        if declared != Some(plain_len.into()) || !one_frame {
            return Err(error);
        }
        plain.resize(index(plain_len.into()), 0);
        match self.decompressor.decompress_to_buffer(payload, &mut plain[..]) {
            Ok(len) if len == plain.len() => Ok(()),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(plain: &[u8]) -> (FrameHeader, Vec<u8>) {
        let mut encoder = Encoder::new();
        let (header, payload) = encoder.encode(FrameKind::Data, ChunkId::of(plain), plain).unwrap();
        (header, payload.to_vec())
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn text_is_compressed_and_noise_is_not() {
        let text = "where the water waits\n".repeat(4000).into_bytes();
        let (header, payload) = encode(&text);
        assert_eq!(header.codec, Codec::Zstd);
        assert!(payload.len() < text.len() / 10);
        assert_eq!(Decoder::new().decode(&header, &payload, &mut Vec::new()).unwrap(), text);
        assert_eq!(encode(&noise(100_000)).0.codec, Codec::Raw);
        assert_eq!(encode(&noise(1)).0.codec, Codec::Raw);
    }

    #[test]
    fn every_flipped_bit_of_a_payload_is_found() {
        for plain in [b"forebay ".repeat(40), noise(300)] {
            let (header, payload) = encode(&plain);
            for bit in 0..payload.len() * 8 {
                let mut bad = payload.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Decoder::new().decode(&header, &bad, &mut Vec::new()).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_payload_that_swells_is_refused_before_memory_is_used() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        let header = FrameHeader {
            kind: FrameKind::Data,
            codec: Codec::Zstd,
            depth: 0,
            id: ChunkId::of(b""),
            base: None,
            stored_id: StoredId::of(&bomb),
            plain_len: 4 << 20,
            stored_len: u32::try_from(bomb.len()).unwrap(),
        };
        let mut plain = Vec::new();
        assert!(matches!(Decoder::new().decode(&header, &bomb, &mut plain), Err(CodecError::Decode { .. })));
        assert_eq!(plain.capacity(), 0);
    }

    #[test]
    fn two_frames_in_one_payload_are_refused() {
        let half = zstd::bulk::compress(&[7; 1000], 1).unwrap();
        let double = [half.clone(), half].concat();
        let header = FrameHeader {
            kind: FrameKind::Data,
            codec: Codec::Zstd,
            depth: 0,
            id: ChunkId::of(&[7; 1000]),
            base: None,
            stored_id: StoredId::of(&double),
            plain_len: 1000,
            stored_len: u32::try_from(double.len()).unwrap(),
        };
        assert!(Decoder::new().decode(&header, &double, &mut Vec::new()).is_err());
    }
}

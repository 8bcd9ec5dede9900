//! Plain bytes to payload and back, with the proof that the way back works.

mod patch;

use std::fmt;

use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, Limits, PATCH_DEPTH_MAX, StoredId};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, DParameter};

use self::patch::{Differ, Patch};
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
/// A patch is taken without a look at the other codecs if all but one part in this comes from the base...
const PATCH_SURE: usize = 8;
/// ... and else if it is smaller than what they make by this one: whoever has no base reads that too.
const PATCH_GAIN: usize = 2;
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
    /// It is a patch, and its base was not given.
    #[error("chunk {id} is stored as a patch of chunk {base}, which is not there")]
    Base {
        /// The chunk.
        id: ChunkId,
        /// Its base.
        base: ChunkId,
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
            Self::Stored { id }
            | Self::Decode { id, .. }
            | Self::Id { id }
            | Self::Base { id, .. }
            | Self::RoundTrip { id } => *id,
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

/// A chunk that another one may be a patch of. It is stored already, in a chain of `depth` bases, and its plain bytes have
/// been verified.
#[derive(Debug, Clone, Copy)]
pub struct Base<'b> {
    /// The chunk.
    pub id: ChunkId,
    /// Length of the chain below the frame it was read from.
    pub depth: u8,
    /// Its plain bytes.
    pub plain: &'b [u8],
}

/// Encodes chunks. Holds the encoder's tables and scratch memory; one a thread.
pub struct Encoder {
    compressor: Compressor<'static>,
    decoder: Decoder,
    differ: Differ,
    payload: Vec<u8>,
    patch: Vec<u8>,
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
        let (differ, decoder) = (Differ::default(), Decoder::new());
        Self { compressor, decoder, differ, payload: Vec::new(), patch: Vec::new(), check: Vec::new() }
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
        let header = self.alone(kind, id, plain)?;
        Ok((header, self.chosen(&header, plain)))
    }

    /// As [`Self::encode`], for data whose base is at hand: a patch of it if that is clearly smaller.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    ///
    /// # Panics
    /// As for [`Self::encode`], and if the base lies as deep as chains go.
    pub fn encode_against<'a>(
        &'a mut self,
        id: ChunkId,
        plain: &'a [u8],
        base: &Base<'_>,
    ) -> Result<(FrameHeader, &'a [u8]), CodecError> {
        assert!(base.depth < PATCH_DEPTH_MAX, "a base of the last depth is none");
        let patched = self.patch(id, plain, base)?;
        // Literals of text can be small by themselves, without any help of the base.
        let is_sure = self.differ.literals().len() * PATCH_SURE <= plain.len();
        if let Some(header) = patched.filter(|_| is_sure) {
            return Ok((header, &self.patch));
        }
        let alone = self.alone(FrameKind::Data, id, plain)?;
        let gains = |patch: &FrameHeader| index(patch.stored_len.into()) * PATCH_GAIN <= index(alone.stored_len.into());
        let header = patched.filter(gains).unwrap_or(alone);
        Ok((header, self.chosen(&header, plain)))
    }

    /// The payload that a header just made is about.
    fn chosen<'a>(&'a self, header: &FrameHeader, plain: &'a [u8]) -> &'a [u8] {
        match header.codec {
            Codec::Raw => plain,
            Codec::Zstd => &self.payload,
            Codec::Patch => &self.patch,
        }
    }

    /// Encodes without a base: into `self.payload`, unless raw is as good.
    fn alone(&mut self, kind: FrameKind, id: ChunkId, plain: &[u8]) -> Result<FrameHeader, CodecError> {
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
            return Ok(raw);
        }
        let header = FrameHeader {
            codec: Codec::Zstd,
            stored_id: StoredId::of(&self.payload),
            stored_len: u32::try_from(self.payload.len()).expect("shorter than the plain bytes"),
            ..raw
        };
        self.decoder.decompress(id, plain_len, &self.payload, &mut self.check).ok();
        if self.check == plain { Ok(header) } else { Err(CodecError::RoundTrip { id }) }
    }

    /// Encodes a patch into `self.patch`; `None` if it saves nothing.
    fn patch(&mut self, id: ChunkId, plain: &[u8], base: &Base<'_>) -> Result<Option<FrameHeader>, CodecError> {
        self.differ.diff(base.plain, plain);
        // Too many pieces, or next to nothing in common.
        if self.differ.head_len() + self.differ.literals().len() / 8 >= plain.len() / PATCH_GAIN {
            return Ok(None);
        }
        self.patch.clear();
        self.differ.encode_head(&mut self.patch);
        let literals = self.differ.take_literals();
        let smaller = literals.len() > MIN_GAIN && self.compresses(&literals) && self.compress(&literals);
        self.patch.extend_from_slice(if smaller { &self.payload } else { &literals });
        self.differ.give_back(literals);
        if self.patch.len() * PATCH_GAIN >= plain.len() {
            return Ok(None);
        }
        let header = FrameHeader {
            kind: FrameKind::Data,
            codec: Codec::Patch,
            depth: base.depth + 1,
            id,
            base: Some(base.id),
            stored_id: StoredId::of(&self.patch),
            plain_len: u32::try_from(plain.len()).expect("chunks are cut to a maximum far below 4 GiB"),
            stored_len: u32::try_from(self.patch.len()).expect("shorter than the plain bytes"),
        };
        self.decoder.apply(&header, &self.patch, base.plain, &mut self.check).ok();
        if self.check == plain { Ok(Some(header)) } else { Err(CodecError::RoundTrip { id }) }
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
    literals: Vec<u8>,
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
        Self { decompressor, literals: Vec::new() }
    }

    /// Decodes a payload and verifies every byte against the id. `base` is the plain bytes of the base of a patch; nothing
    /// else looks at it. Returns the payload itself where it is the plain bytes, else `buffer`, which takes no more memory
    /// than the plain length the header announces, which its decoder has bounded.
    ///
    /// # Errors
    /// [`CodecError`] says which check fails; `buffer` must not be used then.
    pub fn decode<'b>(
        &mut self,
        header: &FrameHeader,
        payload: &'b [u8],
        base: Option<&[u8]>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], CodecError> {
        let id = header.id;
        check_stored(header, payload)?;
        let plain = match header.codec {
            Codec::Raw => payload,
            Codec::Zstd => {
                self.decompress(id, header.plain_len, payload, buffer)?;
                &**buffer
            }
            Codec::Patch => {
                let base = base.ok_or_else(|| missing_base(header))?;
                self.apply(header, payload, base, buffer)?;
                &**buffer
            }
        };
        if ChunkId::of(plain) == id { Ok(plain) } else { Err(CodecError::Id { id }) }
    }

    /// Checks a frame as far as that goes without its base: a patch is what was stored and makes as many bytes as it says,
    /// everything else is decoded.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub fn check(&mut self, header: &FrameHeader, payload: &[u8], buffer: &mut Vec<u8>) -> Result<(), CodecError> {
        if header.codec != Codec::Patch {
            return self.decode(header, payload, None, buffer).map(|_plain| ());
        }
        check_stored(header, payload)?;
        match Patch::decode(payload, index(header.plain_len.into())) {
            Some(_) => Ok(()),
            None => Err(undecodable(header)),
        }
    }

    /// Puts a chunk together from its base.
    fn apply(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        base: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let plain_len = index(header.plain_len.into());
        let patch = Patch::decode(payload, plain_len).ok_or_else(|| undecodable(header))?;
        let mut literals = std::mem::take(&mut self.literals);
        let stored = patch.stored_literals;
        let applied = if stored.len() == patch.literal_len {
            Ok(stored)
        } else {
            let len = u32::try_from(patch.literal_len).expect("no more than the plain length");
            self.decompress(header.id, len, stored, &mut literals).map(|()| &*literals)
        };
        let applied = applied.and_then(|literals| {
            plain.clear();
            plain.reserve(plain_len);
            patch.apply(base, literals, plain).ok_or_else(|| undecodable(header))
        });
        self.literals = literals;
        applied
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

/// The payload is the one that was stored. Of a raw one its id says so.
fn check_stored(header: &FrameHeader, payload: &[u8]) -> Result<(), CodecError> {
    let is_whole = header.stored_len as usize == payload.len()
        && (header.codec == Codec::Raw || StoredId::of(payload) == header.stored_id);
    if is_whole { Ok(()) } else { Err(CodecError::Stored { id: header.id }) }
}

const fn undecodable(header: &FrameHeader) -> CodecError {
    CodecError::Decode { id: header.id, plain_len: header.plain_len }
}

fn missing_base(header: &FrameHeader) -> CodecError {
    CodecError::Base { id: header.id, base: header.base.unwrap_or(header.id) }
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
        assert_eq!(Decoder::new().decode(&header, &payload, None, &mut Vec::new()).unwrap(), text);
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
                assert!(Decoder::new().decode(&header, &bad, None, &mut Vec::new()).is_err(), "bit {bit}");
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
        assert!(matches!(Decoder::new().decode(&header, &bomb, None, &mut plain), Err(CodecError::Decode { .. })));
        assert_eq!(plain.capacity(), 0);
    }

    /// A base and a chunk that differs from it in the middle, with the frame of the patch.
    fn patched(inserted: &[u8]) -> (Vec<u8>, Vec<u8>, FrameHeader, Vec<u8>) {
        let base = noise(100_000);
        let plain = [&base[..60_000], inserted, &base[60_010..]].concat();
        let mut encoder = Encoder::new();
        let from = Base { id: ChunkId::of(&base), depth: 3, plain: &base };
        let (header, payload) = encoder.encode_against(ChunkId::of(&plain), &plain, &from).unwrap();
        let payload = payload.to_vec();
        (base, plain, header, payload)
    }

    #[test]
    fn a_changed_chunk_is_a_patch_of_its_base() {
        let text = "where the water waits\n".repeat(40);
        for (inserted, len_max) in [(&b"twelve bytes"[..], 60), (text.as_bytes(), 120), (&[], 40)] {
            let (base, plain, header, payload) = patched(inserted);
            assert_eq!((header.codec, header.depth, header.base), (Codec::Patch, 4, Some(ChunkId::of(&base))));
            assert!(payload.len() <= len_max, "{} bytes", payload.len());
            let mut buffer = Vec::new();
            let mut decoder = Decoder::new();
            assert_eq!(decoder.decode(&header, &payload, Some(&base), &mut buffer).unwrap(), plain);
            decoder.check(&header, &payload, &mut buffer).unwrap();
            let without = decoder.decode(&header, &payload, None, &mut buffer);
            assert!(matches!(without, Err(CodecError::Base { .. })));
            let other = decoder.decode(&header, &payload, Some(&base[1..]), &mut buffer);
            assert!(matches!(other, Err(CodecError::Id { .. } | CodecError::Decode { .. })));
        }
    }

    #[test]
    fn a_chunk_that_has_little_of_its_base_stands_alone() {
        let (base, mut encoder) = (noise(100_000), Encoder::new());
        let from = Base { id: ChunkId::of(&base), depth: 0, plain: &base };
        let other = [&noise(9)[..], &base[..40_000], &noise(150_000)[100_000..]].concat();
        let text = "where the water waits\n".repeat(4000).into_bytes();
        for (plain, codec) in [(other, Codec::Raw), (text, Codec::Zstd), (vec![], Codec::Raw), (vec![1], Codec::Raw)] {
            let (header, payload) = encoder.encode_against(ChunkId::of(&plain), &plain, &from).unwrap();
            assert_eq!((header.codec, header.depth, header.base), (codec, 0, None));
            assert_eq!(Decoder::new().decode(&header, payload, None, &mut Vec::new()).unwrap(), plain);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_patch_is_found() {
        for inserted in [&b"ten bytes."[..], &[b'x'; 200]] {
            let (base, plain, header, payload) = patched(inserted);
            for bit in 0..payload.len() * 8 {
                let mut bad = payload.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
                assert!(decoder.decode(&header, &bad, Some(&base), &mut buffer).is_err(), "bit {bit}");
                assert!(decoder.check(&header, &bad, &mut buffer).is_err(), "bit {bit}");
                // Forged, with the bits that zstd does not care about: never other bytes.
                let forged = FrameHeader { stored_id: StoredId::of(&bad), ..header };
                if let Ok(decoded) = decoder.decode(&forged, &bad, Some(&base), &mut buffer) {
                    assert_eq!(decoded, plain, "bit {bit}");
                }
            }
        }
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
        assert!(Decoder::new().decode(&header, &double, None, &mut Vec::new()).is_err());
    }
}

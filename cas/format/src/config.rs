//! `forebay.cbor`: what a repository is, fixed when it is made.

use minicbor::{Decode, Encode};

use crate::{DecodeError, Limits, RepositoryId, Timestamp, sealed};

const MAGIC: [u8; 8] = *b"FBYCONF0";
const WHAT: &str = "repository configuration";

/// How ids are made from plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum IdScheme {
    /// Plain BLAKE3-256.
    #[n(0)]
    Blake3,
}

/// How payloads are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Cipher {
    /// Not at all.
    #[n(0)]
    None,
}

/// How file content is cut: FastCDC 2020 with its three sizes in bytes and the normalisation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ChunkerParams {
    /// No chunk but a segment's last is shorter.
    #[n(0)]
    pub min_bytes: u32,
    /// What the chunks are on average, a power of two.
    #[n(1)]
    pub avg_bytes: u32,
    /// No chunk is longer.
    #[n(2)]
    pub max_bytes: u32,
    /// Normalised chunking level, 0 to 3 (FastCDC paper §3.4).
    #[n(3)]
    pub normalization: u8,
}

impl ChunkerParams {
    /// Whether the chunker takes these sizes: even, ordered, a power of two on average, and within the bounds of FastCDC:
    /// at least 64, 256 and 1,024 bytes, at most 1, 4 and 16 MiB. Its table of masks ends there: other averages would
    /// cut everywhere or find no mask at all.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        let Self { min_bytes, avg_bytes, max_bytes, normalization } = *self;
        min_bytes >= 64
            && min_bytes <= 1 << 20
            && avg_bytes >= 256
            && avg_bytes <= 4 << 20
            && max_bytes >= 1024
            && min_bytes.is_multiple_of(2)
            && max_bytes.is_multiple_of(2)
            && min_bytes < avg_bytes
            && avg_bytes < max_bytes
            && avg_bytes.is_power_of_two()
            && max_bytes <= Limits::DEFAULT.chunk_bytes
            && normalization <= 3
    }
}

/// The object `forebay.cbor`, created once and never changed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RepositoryConfig {
    /// Version of the formats in this repository.
    #[n(0)]
    pub format: u8,
    /// Random name of the repository.
    #[n(1)]
    pub id: RepositoryId,
    /// How content is cut.
    #[n(2)]
    pub chunker: ChunkerParams,
    /// How ids are made.
    #[n(3)]
    pub id_scheme: IdScheme,
    /// How payloads are encrypted.
    #[n(4)]
    pub cipher: Cipher,
    /// Lowest format version a program must know to write here.
    #[n(5)]
    pub min_writer: u8,
    /// When it was made.
    #[n(6)]
    pub created: Timestamp,
}

impl RepositoryConfig {
    /// The format version this program reads and writes.
    pub const FORMAT: u8 = 0;

    /// The object's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(&MAGIC, self)
    }

    /// Reads the object.
    ///
    /// # Errors
    /// [`DecodeError::Version`] for a repository of a newer version, other [`DecodeError`]s for damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let config: Self = sealed::open(WHAT, &MAGIC, bytes, Limits::DEFAULT.small_object_bytes)?;
        for found in [config.format, config.min_writer] {
            if found > Self::FORMAT {
                return Err(DecodeError::Version { what: WHAT, found, supported: Self::FORMAT });
            }
        }
        if !config.chunker.is_valid() {
            let value = config.chunker.avg_bytes.into();
            return Err(DecodeError::Field { what: WHAT, field: "chunk size", value });
        }
        if !config.created.is_valid() {
            let value = config.created.nanos.into();
            return Err(DecodeError::Field { what: WHAT, field: "time", value });
        }
        Ok(config)
    }
}

//! Names of things: BLAKE3 digests (32 bytes) and random names (16 bytes).

use std::fmt;
use std::str::FromStr;

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};

macro_rules! byte_name {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// Takes the bytes as they are.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// Lower-case hexadecimal digits.
            #[must_use]
            pub fn to_hex(&self) -> String {
                hex::encode(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.to_hex())
            }
        }

        impl FromStr for $name {
            type Err = hex::FromHexError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0; $len];
                hex::decode_to_slice(text, &mut bytes)?;
                Ok(Self(bytes))
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
                e.bytes(&self.0)?.ok()
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
                let bytes = d.bytes()?;
                let bytes = bytes
                    .try_into()
                    .map_err(|_wrong_length| decode::Error::message(concat!("not ", stringify!($len), " bytes")))?;
                Ok(Self(bytes))
            }
        }
    };
}

macro_rules! digest_of {
    ($name:ident) => {
        impl $name {
            /// BLAKE3-256 of the bytes.
            #[must_use]
            pub fn of(bytes: &[u8]) -> Self {
                Self(*blake3::hash(bytes).as_bytes())
            }
        }

        impl From<blake3::Hash> for $name {
            fn from(hash: blake3::Hash) -> Self {
                Self(*hash.as_bytes())
            }
        }
    };
}

byte_name!(
    /// Name of a chunk: BLAKE3-256 of its plain bytes, whatever codec stores it.
    ChunkId,
    32
);
byte_name!(
    /// BLAKE3-256 of a frame's payload as stored. Equal to the chunk id for raw frames.
    StoredId,
    32
);
byte_name!(
    /// Name of a snapshot: BLAKE3-256 of its encoded bytes.
    SnapshotId,
    32
);
byte_name!(
    /// BLAKE3-256 of a whole file, equal to what `b3sum` prints.
    FileDigest,
    32
);
byte_name!(
    /// BLAKE3-256 of an object of the repository: a log record, a state, a segment.
    Digest,
    32
);
byte_name!(
    /// Random name of a repository, made once.
    RepositoryId,
    16
);
byte_name!(
    /// Random name of a pack; never used twice.
    PackId,
    16
);
byte_name!(
    /// Random name of an index segment; never used twice.
    SegmentId,
    16
);
byte_name!(
    /// Random value that tells a writer whether a log record is its own.
    Nonce,
    16
);
byte_name!(
    /// Public key of a node: what the network knows it by.
    NodeKey,
    32
);
byte_name!(
    /// Random name of a booking in the budgets; never used twice.
    BookingId,
    16
);
digest_of!(ChunkId);
digest_of!(StoredId);
digest_of!(SnapshotId);
digest_of!(FileDigest);
digest_of!(Digest);

impl SnapshotId {
    /// The chunk that holds the snapshot: the same digest, read as a chunk of kind snapshot.
    #[must_use]
    pub const fn chunk_id(self) -> ChunkId {
        ChunkId(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trip_and_wrong_lengths() {
        let id = ChunkId::of(b"forebay");
        assert_eq!(id.to_hex().parse::<ChunkId>().unwrap(), id);
        assert!("00".parse::<ChunkId>().is_err());
        assert!("zz".repeat(32).parse::<ChunkId>().is_err());
        let mut longer = id.to_hex();
        longer.push_str("00");
        assert!(longer.parse::<ChunkId>().is_err());
    }
}

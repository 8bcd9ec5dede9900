//! The root of a version: content alone, so that equal folders give equal snapshots.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use crate::{ChunkerParams, DecodeError, Directory, Limits, SnapshotId, Timestamp, cbor, labels};

const WHAT: &str = "snapshot";
/// Permission bits an entry may have.
const MODE_BITS: u32 = 0o7777;

/// One version of a folder. Its id is BLAKE3 of its bytes; parent, writer and time stand in the log record instead.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Snapshot {
    /// Permission bits of the root folder (`0o7777`).
    #[n(0)]
    pub mode: u32,
    /// Modification time of the root folder.
    #[n(1)]
    pub mtime: Timestamp,
    /// The root folder, with what is below it in total.
    #[n(2)]
    pub root: Directory,
    /// How its files were cut.
    #[n(3)]
    pub chunker: ChunkerParams,
    /// Labels such as data class and allowed regions.
    #[cbor(n(4), with = "labels")]
    pub labels: BTreeMap<String, String>,
}

impl Snapshot {
    /// The bytes that are stored as a chunk of kind snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// The snapshot's name.
    #[must_use]
    pub fn id(&self) -> SnapshotId {
        SnapshotId::of(&self.encode())
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`DecodeError`] for anything [`Self::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let snapshot: Self = cbor::decode(WHAT, bytes, Limits::DEFAULT.small_object_bytes)?;
        if snapshot.mode & !MODE_BITS != 0 {
            return Err(DecodeError::Field { what: WHAT, field: "mode", value: snapshot.mode.into() });
        }
        if !snapshot.mtime.is_valid() {
            let value = snapshot.mtime.nanos.into();
            return Err(DecodeError::Field { what: WHAT, field: "time", value });
        }
        if !snapshot.chunker.is_valid() {
            let value = snapshot.chunker.avg_bytes.into();
            return Err(DecodeError::Field { what: WHAT, field: "chunk size", value });
        }
        Ok(snapshot)
    }
}

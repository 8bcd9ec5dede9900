//! What is remembered of files on this machine, so that unchanged ones need not be read again.

use forebay_format::{Content, FileDigest, Hole, Timestamp};
use minicbor::{Decode, Encode};

/// Changes closer than this to a stamp may share it: twice the coarsest kernel tick.
const TICK_NANOS: i128 = 20_000_000;
/// File systems that stamp whole seconds are seen by their stamps; two of theirs.
const COARSE_TICK_NANOS: i128 = 2_000_000_000;

/// What the file system says of a file; a change of content changes the change time at least, which no program can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FileStamp {
    /// Length in bytes.
    #[n(0)]
    pub size: u64,
    /// Modification time.
    #[n(1)]
    pub mtime: Timestamp,
    /// Change time.
    #[n(2)]
    pub ctime: Timestamp,
}

impl FileStamp {
    /// Whether a change after `now` must get another stamp: both stamps lie more than a tick in the past. Otherwise the
    /// file could change within the same tick and look unchanged.
    #[must_use]
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let tick = if self.ctime.nanos == 0 { COARSE_TICK_NANOS } else { TICK_NANOS };
        self.ctime.as_nanos() + tick < now.as_nanos() && self.mtime.as_nanos() + tick < now.as_nanos()
    }
}

/// A file as it was when its bytes were read or written.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StatRecord {
    /// What the file system said then.
    #[n(0)]
    pub stamp: FileStamp,
    /// BLAKE3 of the file.
    #[n(1)]
    pub digest: FileDigest,
    /// Where its bytes are in the repository; not known of files that were fetched.
    #[n(2)]
    pub content: Option<Content>,
    /// Its holes.
    #[n(3)]
    pub holes: Option<Vec<Hole>>,
    /// Chunks its bytes are cut into.
    #[n(5)]
    pub chunks: u64,
    /// Index generation in which the content's chunks were there.
    #[n(4)]
    pub generation: u64,
}

impl StatRecord {
    /// A file that was fetched: its bytes are known, their place in the repository is not asked for.
    #[must_use]
    pub const fn fetched(stamp: FileStamp, digest: FileDigest) -> Self {
        Self { stamp, digest, content: None, holes: None, chunks: 0, generation: 0 }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("a Vec takes every write")
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        minicbor::decode(bytes).ok()
    }
}

pub(super) fn key(device: u64, inode: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&device.to_be_bytes());
    key[8..].copy_from_slice(&inode.to_be_bytes());
    key
}

//! The formats of Forebay: what lies in an origin and what travels on the wire, with no IO at all.
//!
//! Three types to know: [`FrameHeader`] (a chunk as stored), [`TreeNode`] (a piece of a manifest) and
//! [`LogRecord`] (the only commit point). Everything is encoded deterministically, and every decoder is bounded by
//! [`Limits`]: the length of the input is checked before it is read, counts are checked against the bytes that are
//! really there, and CBOR is accepted only if encoding the value again gives the same bytes (RFC 8949 §4.2).
//!
//! Not here: files, object stores, compression, clocks, randomness. The formats are version 0 and may change until the
//! store and the checkpoints are finished; docs/format.md shows the layouts.
//!
//! ```
//! use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, StoredId};
//!
//! let payload = b"water waits here";
//! let header = FrameHeader {
//!     kind: FrameKind::Data,
//!     codec: Codec::Raw,
//!     depth: 0,
//!     id: ChunkId::of(payload),
//!     base: None,
//!     stored_id: StoredId::of(payload),
//!     plain_len: 16,
//!     stored_len: 16,
//! };
//! assert_eq!(FrameHeader::decode(&header.encode()).unwrap(), header);
//! ```

mod budget;
pub mod cbor;
mod config;
mod dsse;
mod error;
mod frame;
mod gc;
mod id;
mod labels;
mod ledger;
mod limits;
mod log;
mod manifest;
mod name;
mod pack;
mod row;
mod sealed;
mod segment;
mod snapshot;
mod time;

pub use crate::budget::{
    BudgetAccount, BudgetAmount, BudgetBooking, BudgetChange, BudgetMoney, BudgetMonth, BudgetOpen, BudgetPriced,
    BudgetRecord, BudgetSet, BudgetSettlement, BudgetState,
};
pub use crate::config::{ChunkerParams, Cipher, IdScheme, RepositoryConfig};
pub use crate::dsse::{Envelope, EnvelopeSignature, pre_authentication_encoding};
pub use crate::error::DecodeError;
pub use crate::frame::{
    Codec, FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, FrameKind, PATCH_DEPTH_MAX, RAW_ALIGNMENT, RAW_ALIGNMENT_FROM,
};
pub use crate::gc::{Boundary, Condemned, Forgotten, GcChange};
pub use crate::id::{
    BookingId, ChunkId, Digest, FileDigest, NodeKey, Nonce, PackId, RepositoryId, SegmentId, SnapshotId, StoredId,
};
pub use crate::ledger::{LEDGER_TEXT_MAX, LedgerRecord, LedgerRow, LedgerUsage};
pub use crate::limits::Limits;
pub use crate::log::{LogRecord, LogState, RefChange, RefState, RefVersion, SegmentRef};
pub use crate::manifest::{
    ChunkRef, Content, Directory, Entry, EntryKind, FileEntry, HOLE_BLOCK, Hole, INLINE_MAX, ListNode, ListRef,
    SubtreeRef, Totals, TreeNode,
};
pub use crate::name::{
    EntryNameError, RefName, RefNameError, StepSpec, StepSpecError, VersionSpec, VersionSpecError, check_entry_name,
};
pub use crate::pack::{PackFooter, PackTrailer, TRAILER_LEN, scan_frames};
pub use crate::row::Row;
pub use crate::segment::{Segment, SegmentPack};
pub use crate::snapshot::Snapshot;
pub use crate::time::Timestamp;

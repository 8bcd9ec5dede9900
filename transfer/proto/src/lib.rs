//! The transfer protocol without its IO: what stands on the wire, and the decisions about who is asked for what.
//!
//! Everything here is a pure function of its arguments. Bytes, the time and random numbers come in as arguments; nothing
//! is read, sent, slept on or spawned. The same code therefore runs in the real driver and in a seeded simulation.
//!
//! Types to know:
//!
//! * [`Request`] opens a stream, [`Item`]s answer on it; [`ItemReader`] takes them off the wire, bounded.
//! * [`Claim`] says who asks and who pays, [`Statement`] what a ref is; both travel [`Signed`].
//! * [`Scheduler`] spreads wanted chunks over sources, in runs, and takes work away from those that are silent or lie.
//! * [`LinkTier`] and the [`LinkProfile`] it gives for one path; [`Pacer`] keeps a sender below a rate.
//!
//! Not here: sockets, TLS, keys (`forebay-transfer`), what a chunk or manifest contains (`forebay-format`), and what is
//! cached or evicted (`forebay-policy`).
//!
//! ```
//! use forebay_format::ChunkId;
//! use forebay_transfer_proto::{Item, ItemReader};
//!
//! let mut wire = Vec::new();
//! Item::Missing(ChunkId::from_bytes([7; 32])).encode(&mut wire);
//! let mut reader = ItemReader::default();
//! reader.feed(wire.into());
//! assert_eq!(reader.next_item()?, Some(Item::Missing(ChunkId::from_bytes([7; 32]))));
//! assert_eq!(reader.next_item()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod item;
pub mod pacer;
pub mod request;
pub mod scheduler;
pub mod signed;
pub mod tier;

pub use item::{From, Item, ItemError, ItemReader, Reply, Trouble};
pub use pacer::{MonotonicUs, Pace, Pacer};
pub use request::{REQUEST_BYTES_MAX, Request, RequestError, WANT_IDS_MAX};
pub use scheduler::{Action, RunId, Scheduler, SchedulerConfig, SourceNumber, Wanted};
pub use signed::{Claim, Purpose, Signed, SignedError, Statement};
pub use tier::{LinkProfile, LinkTier, RUN_BYTES, RateBytesPerS};

/// What both sides name in the TLS handshake; another version has another name.
pub const ALPN: &[u8] = b"forebay/1";

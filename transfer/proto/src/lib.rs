//! The transfer protocol without its IO: what stands on the wire, and the decisions about pace and windows.
//!
//! Everything here is a pure function of its arguments. Bytes, the time and random numbers come in as
//! arguments; nothing is read, sent, slept on or spawned. The same code therefore runs in the real driver
//! and in a seeded simulation.
//!
//! Types to know:
//!
//! * [`Message`] is one unit on a control stream, with a decoder that is bounded by [`Limits`].
//! * [`LinkTier`] and the [`LinkProfile`] it gives for one path: rate cap, connections, windows, read-ahead.
//! * [`Pacer`] is the token bucket that keeps a sender below a rate.
//!
//! Not here: sockets, TLS, identities (`forebay-transfer`), what a chunk or manifest contains
//! (`forebay-format`), and what is cached or evicted (`forebay-policy`).
//!
//! ```
//! use forebay_transfer_proto::{Limits, Message};
//!
//! let limits = Limits::default();
//! let want = Message::Want { repository: [7; 16], ids: vec![[1; 32], [2; 32]] };
//! let mut wire = Vec::new();
//! want.encode(&limits, &mut wire)?;
//!
//! let mut rest = &wire[..];
//! assert_eq!(Message::decode(&mut rest, &limits)?, Some(want));
//! assert!(rest.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod limits;
pub mod message;
pub mod pacer;
pub mod tier;
pub mod varint;

pub use limits::{Limits, LimitsError};
pub use message::{DecodeError, EncodeError, ErrorClass, Message};
pub use pacer::{MonotonicUs, Pace, Pacer};
pub use tier::{LinkProfile, LinkTier, RateBytesPerS};

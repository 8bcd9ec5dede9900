//! What opens a stream: one request, then the asker's side is finished.

use forebay_format::{ChunkId, DecodeError, FrameKind, RefName, cbor};
use minicbor::{Decode, Encode};
use thiserror::Error;

use crate::signed::Signed;

/// Longest request in bytes: what a stranger can make a node hold for a stream.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Most ids in one request; 34 bytes each, they fit with everything else.
pub const WANT_IDS_MAX: usize = 1500;
/// Longest version of a resolve in bytes: `latest`, digits, or digits of an id.
const VERSION_BYTES_MAX: usize = 64;
/// Longest name of a place in bytes.
const PLACE_BYTES_MAX: usize = 255;

/// One request. Deterministic CBOR of at most [`REQUEST_BYTES_MAX`] bytes; the end of the stream ends it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[non_exhaustive]
pub enum Request {
    /// What a version of a ref is. Answered by [`crate::Reply::Resolved`].
    #[n(0)]
    Resolve {
        /// Who asks.
        #[n(0)]
        claim: Signed,
        /// The ref.
        #[n(1)]
        name: RefName,
        /// Empty for the newest, else what stands behind `@`.
        #[n(2)]
        version: String,
        /// Whether a checkpoint's step is meant.
        #[n(3)]
        step: bool,
    },
    /// Chunks. Answered by [`crate::Item::Frame`] and [`crate::Item::Missing`], in whatever order is cheapest.
    #[n(1)]
    Want {
        /// Who asks and pays.
        #[n(0)]
        claim: Signed,
        /// Number of the [`FrameKind`].
        #[n(1)]
        kind: u8,
        /// What was reserved for them.
        #[n(2)]
        reservation: Option<Reservation>,
        /// The last answer was damaged: look at your own copy before you send it again.
        #[n(3)]
        fresh: bool,
        /// The chunks.
        #[n(4)]
        ids: Vec<ChunkId>,
        /// The place they go to, as it calls itself: for the bill.
        #[n(5)]
        to: String,
    },
    /// Sets bytes aside in the tenant's budget for chunks that will be wanted; several requests add up. Answered by
    /// [`crate::Reply::Reserved`].
    #[n(2)]
    Reserve {
        /// Who pays.
        #[n(0)]
        claim: Signed,
        /// Chosen by the client.
        #[n(1)]
        reservation: Reservation,
        /// The chunks; may be none.
        #[n(2)]
        ids: Vec<ChunkId>,
        /// The place they go to, as it calls itself.
        #[n(3)]
        to: String,
        /// Stored bytes that need not be sent, since that place has them: for the bill alone.
        #[n(4)]
        avoided_bytes: u64,
    },
    /// Gives back what was reserved and not used. Answered by [`crate::Reply::Done`].
    #[n(3)]
    Release {
        /// Who paid.
        #[n(0)]
        claim: Signed,
        /// Which.
        #[n(1)]
        reservation: Reservation,
    },
    /// Whether a claim holds. Asked by edges. Answered by [`crate::Reply::Done`].
    #[n(4)]
    Authorize {
        /// The claim.
        #[n(0)]
        claim: Signed,
    },
    /// Chunks that an edge is to fetch and keep, and not to send. Answered by [`crate::Reply::Warmed`].
    #[n(5)]
    Warm {
        /// Who asks and pays.
        #[n(0)]
        claim: Signed,
        /// Number of the [`FrameKind`].
        #[n(1)]
        kind: u8,
        /// What was reserved for them.
        #[n(2)]
        reservation: Option<Reservation>,
        /// The chunks.
        #[n(3)]
        ids: Vec<ChunkId>,
    },
    /// How the node is. Answered by [`crate::Reply::Status`].
    #[n(6)]
    Status {
        /// Who asks.
        #[n(0)]
        claim: Signed,
    },
    /// The node is to leave: to take no new work, to end what it has begun, and to go. Only the node's own key may ask that.
    /// Answered by [`crate::Reply::Done`].
    #[n(7)]
    Drain {
        /// Who asks.
        #[n(0)]
        claim: Signed,
        /// Most seconds until it is gone.
        #[n(1)]
        within_s: u32,
    },
}

/// The random name of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Reservation(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// Bytes that are no request. The stream ends; the connection goes on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Not deterministic CBOR of a request.
    #[error("the request is damaged")]
    Damaged(#[from] DecodeError),
    /// No ids, or too many.
    #[error("the request names {count} chunks; 1 to {WANT_IDS_MAX} are possible")]
    Ids {
        /// How many.
        count: usize,
    },
    /// Not a kind of frames.
    #[error("{kind} is no kind of frames")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// Not a place.
    #[error("the name of the place has {len} bytes; {PLACE_BYTES_MAX} are the most")]
    Place {
        /// Its length in bytes.
        len: usize,
    },
    /// Not a version.
    #[error("the version has {len} bytes; {VERSION_BYTES_MAX} are the most")]
    Version {
        /// Its length in bytes.
        len: usize,
    },
}

impl Request {
    /// The request's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`RequestError`] says which rule it breaks.
    pub fn decode(bytes: &[u8]) -> Result<Self, RequestError> {
        let request: Self = cbor::decode("request", bytes, REQUEST_BYTES_MAX as u64)?;
        match &request {
            Self::Want { ids, kind, to, .. } => {
                check_ids(ids)?;
                check_place(to)?;
                FrameKind::from_u8(*kind).ok_or(RequestError::Kind { kind: *kind })?;
            }
            Self::Warm { ids, kind, .. } => {
                check_ids(ids)?;
                FrameKind::from_u8(*kind).ok_or(RequestError::Kind { kind: *kind })?;
            }
            // A place that has everything still says what it need not be sent.
            Self::Reserve { ids, to, .. } => {
                if !ids.is_empty() {
                    check_ids(ids)?;
                }
                check_place(to)?;
            }
            Self::Resolve { version, .. } if version.len() > VERSION_BYTES_MAX => {
                return Err(RequestError::Version { len: version.len() });
            }
            Self::Resolve { .. }
            | Self::Release { .. }
            | Self::Authorize { .. }
            | Self::Status { .. }
            | Self::Drain { .. } => {}
        }
        Ok(request)
    }

    /// The claim that comes with it: no request is answered without one.
    #[must_use]
    pub const fn claim(&self) -> &Signed {
        match self {
            Self::Resolve { claim, .. }
            | Self::Want { claim, .. }
            | Self::Reserve { claim, .. }
            | Self::Release { claim, .. }
            | Self::Authorize { claim }
            | Self::Warm { claim, .. }
            | Self::Status { claim }
            | Self::Drain { claim, .. } => claim,
        }
    }
}

const fn check_place(to: &str) -> Result<(), RequestError> {
    if to.len() > PLACE_BYTES_MAX { Err(RequestError::Place { len: to.len() }) } else { Ok(()) }
}

const fn check_ids(ids: &[ChunkId]) -> Result<(), RequestError> {
    match ids.len() {
        1..=WANT_IDS_MAX => Ok(()),
        count => Err(RequestError::Ids { count }),
    }
}

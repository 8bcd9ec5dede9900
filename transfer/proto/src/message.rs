//! The messages of a control stream, version 0.
//!
//! Layout: `[type: varint][length of the body: varint][body]`. Integers in bodies are varints
//! ([`crate::varint`]) of at most 32 bits; ids are raw bytes. A list of ids has no count of its own: the
//! length of the body gives it, so no number can promise more than is there.
//!
//! | type | message | body |
//! |---|---|---|
//! | 1 | hello | version, the five values of [`Limits`] in their order |
//! | 2 | want | repository (16 bytes), ids (32 bytes each) |
//! | 3 | have | ids |
//! | 4 | missing | ids |
//! | 5 | run | frames, bytes |
//! | 6 | error | class |

use thiserror::Error;

use crate::limits::{Limits, LimitsError};
use crate::varint::{self, VarintError};

/// The protocol version that this crate speaks.
pub const VERSION: u32 = 0;

/// One message of a control stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// First on a connection, from both sides.
    Hello {
        /// Protocol version of the sender. Versions that differ end the connection.
        version: u32,
        /// What the sender is ready to receive.
        limits: Limits,
    },
    /// Asks for chunks, in the order in which the asker would like them; the answer comes in storage order.
    Want {
        /// The repository they belong to.
        repository: [u8; 16],
        /// Their ids, at least one.
        ids: Vec<[u8; 32]>,
    },
    /// Answer to a want: these follow in runs.
    Have {
        /// Ids out of the want, at least one.
        ids: Vec<[u8; 32]>,
    },
    /// Answer to a want: these are not here; ask elsewhere.
    Missing {
        /// Ids out of the want, at least one.
        ids: Vec<[u8; 32]>,
    },
    /// Head of a run: `bytes` bytes with `frames` whole frames follow on the same stream.
    Run {
        /// Number of frames, at least one.
        frames: u32,
        /// Length of all frames together as stored, in bytes.
        bytes: u32,
    },
    /// The request of this stream ends without what it asked for.
    Error {
        /// What the asker can do about it.
        class: ErrorClass,
    },
}

impl Message {
    /// Appends the message to `out`. Nothing is appended if it breaks `limits`, those agreed with the peer.
    ///
    /// # Errors
    /// [`EncodeError`]: the message is one that the peer would refuse.
    pub fn encode(&self, limits: &Limits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check(limits)?;
        let mut body = Vec::new();
        match self {
            Self::Hello { version, limits } => {
                varint::encode(u64::from(*version), &mut body);
                limits.fields().into_iter().for_each(|(_, value)| varint::encode(u64::from(value), &mut body));
            }
            Self::Want { repository, ids } => {
                body.extend_from_slice(repository);
                body.extend(ids.iter().flatten());
            }
            Self::Have { ids } | Self::Missing { ids } => body.extend(ids.iter().flatten()),
            Self::Run { frames, bytes } => {
                varint::encode(u64::from(*frames), &mut body);
                varint::encode(u64::from(*bytes), &mut body);
            }
            Self::Error { class } => varint::encode(class.code(), &mut body),
        }
        let len = body.len() as u64;
        if len > u64::from(limits.message_bytes_max) {
            return Err(Violation::BodyTooLong { len, max: limits.message_bytes_max }.into());
        }
        varint::encode(self.kind(), out);
        varint::encode(len, out);
        out.append(&mut body);
        Ok(())
    }

    /// Reads one message from the front of `input` and moves `input` past it.
    ///
    /// `None`: the message has not arrived whole; call again with more bytes behind the same ones. It never
    /// takes more than `limits.message_bytes_max` and 16 bytes of head before it answers otherwise.
    ///
    /// # Errors
    /// [`DecodeError`]: the peer breaks the protocol. The connection cannot go on; `input` has not moved.
    pub fn decode(input: &mut &[u8], limits: &Limits) -> Result<Option<Self>, DecodeError> {
        let mut rest = *input;
        let Some(kind) = complete(varint::decode(&mut rest))? else {
            return Ok(None);
        };
        if !(HELLO..=ERROR).contains(&kind) {
            return Err(DecodeError::UnknownType { kind });
        }
        let Some(len) = complete(varint::decode(&mut rest))? else {
            return Ok(None);
        };
        if len > u64::from(limits.message_bytes_max) {
            return Err(Violation::BodyTooLong { len, max: limits.message_bytes_max }.into());
        }
        let split = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
        let Some((body, rest)) = split else {
            return Ok(None);
        };
        let message = Self::decode_body(kind, body, limits)?;
        message.check(limits)?;
        *input = rest;
        Ok(Some(message))
    }

    fn decode_body(kind: u64, mut body: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let message = match kind {
            HELLO => {
                let version = read_u32(&mut body)?;
                let mut values = [0; 5];
                for value in &mut values {
                    *value = read_u32(&mut body)?;
                }
                Self::Hello { version, limits: Limits::from_fields(values) }
            }
            WANT => {
                let Some((repository, ids)) = body.split_first_chunk() else {
                    return Err(DecodeError::BadIdList { len: body.len() });
                };
                body = &[];
                Self::Want { repository: *repository, ids: read_ids(ids, limits)? }
            }
            HAVE | MISSING => {
                let ids = read_ids(std::mem::take(&mut body), limits)?;
                if kind == HAVE { Self::Have { ids } } else { Self::Missing { ids } }
            }
            RUN => Self::Run { frames: read_u32(&mut body)?, bytes: read_u32(&mut body)? },
            _ => {
                let code = read_u32(&mut body)?;
                let class = ErrorClass::from_code(code).ok_or(DecodeError::UnknownErrorClass { code })?;
                Self::Error { class }
            }
        };
        match body.len() {
            0 => Ok(message),
            extra => Err(DecodeError::TrailingBytes { extra }),
        }
    }

    /// The rules that both sides hold a message to: the sender before it leaves, the receiver when it arrives.
    fn check(&self, limits: &Limits) -> Result<(), Violation> {
        match self {
            Self::Hello { limits, .. } => limits.check().map_err(Violation::Limits),
            Self::Want { ids, .. } | Self::Have { ids } | Self::Missing { ids } => check_id_count(ids.len(), limits),
            Self::Run { frames, bytes } => {
                if !(1..=limits.run_frames_max).contains(frames) {
                    return Err(Violation::RunFrames { frames: *frames, max: limits.run_frames_max });
                }
                if !(*frames..=limits.run_bytes_max).contains(bytes) {
                    return Err(Violation::RunBytes { frames: *frames, bytes: *bytes, max: limits.run_bytes_max });
                }
                Ok(())
            }
            Self::Error { .. } => Ok(()),
        }
    }

    const fn kind(&self) -> u64 {
        match self {
            Self::Hello { .. } => HELLO,
            Self::Want { .. } => WANT,
            Self::Have { .. } => HAVE,
            Self::Missing { .. } => MISSING,
            Self::Run { .. } => RUN,
            Self::Error { .. } => ERROR,
        }
    }
}

/// Why a request ends without what it asked for. The names are those of the command line's exit classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Anything without a class of its own; the same request may work elsewhere.
    Failed,
    /// No such repository or ref.
    NotFound,
    /// The bytes here fail a check; ask elsewhere.
    Corrupt,
    /// Identity, tenant, region or claim is not accepted.
    Auth,
    /// An egress budget refuses.
    Budget,
    /// The source behind this node is out of reach or too slow.
    Net,
    /// This node has no room or is leaving; ask elsewhere.
    Busy,
}

impl ErrorClass {
    const ALL: [Self; 7] =
        [Self::Failed, Self::NotFound, Self::Corrupt, Self::Auth, Self::Budget, Self::Net, Self::Busy];

    /// The number on the wire: the command line's exit code, and 64 for [`ErrorClass::Busy`], which has none.
    pub const fn code(self) -> u64 {
        match self {
            Self::Failed => 1,
            Self::NotFound => 3,
            Self::Corrupt => 4,
            Self::Auth => 5,
            Self::Budget => 6,
            Self::Net => 7,
            Self::Busy => 64,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == u64::from(code))
    }
}

/// A message that breaks the rules which both sides check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The body is longer than the receiver accepts.
    #[error("a message of {len} bytes is above the limit of {max}")]
    BodyTooLong {
        /// Length of the body in bytes.
        len: u64,
        /// The limit in bytes.
        max: u32,
    },
    /// A list of ids is empty or longer than the receiver accepts.
    #[error("a list of {count} ids is not within 1 and {max}")]
    IdCount {
        /// Ids in the list.
        count: usize,
        /// The limit.
        max: u32,
    },
    /// A run has no frame, or more than the receiver accepts.
    #[error("a run of {frames} frames is not within 1 and {max}")]
    RunFrames {
        /// Frames in the run.
        frames: u32,
        /// The limit.
        max: u32,
    },
    /// A run is longer than the receiver accepts, or has less than a byte per frame.
    #[error("a run of {frames} frames and {bytes} bytes is not within {frames} and {max} bytes")]
    RunBytes {
        /// Frames in the run.
        frames: u32,
        /// Bytes in the run.
        bytes: u32,
        /// The limit in bytes.
        max: u32,
    },
    /// A hello names a limit too small to work with.
    #[error("the hello is not acceptable")]
    Limits(#[source] LimitsError),
}

/// Why a message cannot be sent: a fault of this side, found before the peer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the message breaks the limits agreed with the peer")]
pub struct EncodeError(#[from] Violation);

/// Why bytes of a peer are not a message. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A type that this version does not know.
    #[error("the message type {kind} is not known")]
    UnknownType {
        /// The type on the wire.
        kind: u64,
    },
    /// An error class that this version does not know.
    #[error("the error class {code} is not known")]
    UnknownErrorClass {
        /// The class on the wire.
        code: u32,
    },
    /// A list of ids that is no multiple of 32 bytes, or a want without a repository.
    #[error("a list of ids has a length of {len} bytes")]
    BadIdList {
        /// Length in bytes.
        len: usize,
    },
    /// A number that does not fit 32 bits.
    #[error("the number {value} does not fit 32 bits")]
    NumberTooLarge {
        /// The number on the wire.
        value: u64,
    },
    /// Bytes behind the last field of a body.
    #[error("the body has {extra} bytes behind its last field")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
    /// A number that is cut off by the end of the body, or not in its shortest form.
    #[error("a number is not well formed")]
    Varint(#[from] VarintError),
    /// The message is well formed and breaks a rule.
    #[error("the message breaks a limit")]
    Violation(#[from] Violation),
}

/// `None` for an integer that the end of the input cuts off.
fn complete(read: Result<u64, VarintError>) -> Result<Option<u64>, DecodeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(VarintError::Truncated { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_u32(body: &mut &[u8]) -> Result<u32, DecodeError> {
    let value = varint::decode(body)?;
    u32::try_from(value).or(Err(DecodeError::NumberTooLarge { value }))
}

fn read_ids(body: &[u8], limits: &Limits) -> Result<Vec<[u8; 32]>, DecodeError> {
    let (ids, rest) = body.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(DecodeError::BadIdList { len: body.len() });
    }
    check_id_count(ids.len(), limits)?;
    Ok(ids.to_vec())
}

fn check_id_count(count: usize, limits: &Limits) -> Result<(), Violation> {
    let max = limits.ids_max;
    let fits = u32::try_from(count).is_ok_and(|count| (1..=max).contains(&count));
    if fits { Ok(()) } else { Err(Violation::IdCount { count, max }) }
}

const HELLO: u64 = 1;
const WANT: u64 = 2;
const HAVE: u64 = 3;
const MISSING: u64 = 4;
const RUN: u64 = 5;
const ERROR: u64 = 6;

#[cfg(test)]
mod tests;

//! What answers on a stream: items, one after the other, until the stream is finished.
//!
//! Layout: `[tag: u8][length of the body: u32 LE][body]`.
//!
//! | tag | item | body |
//! |---|---|---|
//! | 1 | frame | where it came from (u8), frame header (128 B), payload |
//! | 2 | missing | id (32 B) |
//! | 3 | reply | CBOR of [`Reply`] |
//! | 4 | trouble | class (u8), a message (UTF-8) |

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes};
use forebay_format::{ChunkId, DecodeError, FRAME_HEADER_LEN, FrameHeader, Limits, cbor};
use minicbor::{Decode, Encode};
use thiserror::Error;

use crate::signed::Signed;

const HEAD_LEN: usize = 5;
const FRAME: u8 = 1;
const MISSING: u8 = 2;
const REPLY: u8 = 3;
const TROUBLE: u8 = 4;
/// Memory set aside for a body before any of it has come: a chunk of the default profile.
const BODY_RESERVE: usize = (1 << 20) + 4096;
/// Longest reply in bytes.
const REPLY_BYTES_MAX: u32 = 8192;
/// Longest message of a trouble in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Where a frame came from, seen from who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum From {
    /// The node had it, or fetched it for somebody else at the same time.
    Site = 1,
    /// It crossed the uplink for this request.
    Gateway = 2,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A chunk as stored.
    Frame {
        /// Where it came from.
        from: From,
        /// Its header.
        header: FrameHeader,
        /// Its stored bytes, not verified yet.
        payload: Bytes,
    },
    /// This chunk is not to be had here.
    Missing(ChunkId),
    /// The answer to anything but a want.
    Reply(Reply),
    /// The request ends here without what it asked for.
    Trouble {
        /// What the asker can do about it.
        trouble: Trouble,
        /// For people.
        message: String,
    },
}

/// Answers to requests that are not for chunks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[non_exhaustive]
pub enum Reply {
    /// A signed [`crate::Statement`].
    #[n(0)]
    Resolved(#[n(0)] Signed),
    /// Stored bytes that were set aside by this request.
    #[n(1)]
    Reserved(#[n(0)] u64),
    /// Done, or holds.
    #[n(2)]
    Done,
    /// Stored bytes that crossed the uplink for this request; the chunks are kept, as far as there is room.
    #[n(3)]
    Warmed(#[n(0)] u64),
    /// How the node is: a JSON object, the one of `GET /v1/status`.
    #[n(4)]
    Status(#[n(0)] String),
}

/// Why a request ends without what it asked for. Names and numbers are those of the command line's exit classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Trouble {
    /// Anything without a class of its own; the same request may work elsewhere.
    Failed = 1,
    /// The request makes no sense to this node.
    Usage = 2,
    /// No such repository, ref, version or chunk.
    NotFound = 3,
    /// The bytes here fail a check; ask elsewhere.
    Corrupt = 4,
    /// Identity, tenant or claim is not accepted.
    Auth = 5,
    /// An egress budget refuses.
    Budget = 6,
    /// The source behind this node is out of reach or too slow.
    Net = 7,
    /// This node has no room or is leaving; ask elsewhere.
    Busy = 64,
}

impl Trouble {
    const ALL: [Self; 8] =
        [Self::Failed, Self::Usage, Self::NotFound, Self::Corrupt, Self::Auth, Self::Budget, Self::Net, Self::Busy];

    fn from_u8(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|trouble| *trouble as u8 == code)
    }
}

/// Bytes of a peer that are no answer. The stream ends, and the peer is not asked again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ItemError {
    /// A tag that this version does not know, or a length that such an item cannot have.
    #[error("an item has the tag {tag} and a length of {len} bytes")]
    Head {
        /// The tag.
        tag: u8,
        /// The length in bytes.
        len: u32,
    },
    /// A body that does not decode.
    #[error("an item is damaged")]
    Body(#[from] DecodeError),
    /// A number without a meaning.
    #[error("{value} is no {field}")]
    Value {
        /// Of what.
        field: &'static str,
        /// The number.
        value: u8,
    },
}

impl Item {
    /// Appends the item's bytes, those of a frame's payload too.
    ///
    /// # Panics
    /// If a reply or payload is longer than any this program makes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.put_slice(&[0; HEAD_LEN]);
        let tag = match self {
            Self::Frame { from, header, payload } => {
                out.truncate(at);
                out.put_slice(&frame_head(*from, header));
                out.put_slice(payload);
                return;
            }
            Self::Missing(id) => {
                out.put_slice(id.as_bytes());
                MISSING
            }
            Self::Reply(reply) => {
                out.put_slice(&cbor::encode(reply));
                REPLY
            }
            Self::Trouble { trouble, message } => {
                out.put_u8(*trouble as u8);
                out.put_slice(&message.as_bytes()[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]);
                TROUBLE
            }
        };
        let len = u32::try_from(out.len() - at - HEAD_LEN).expect("items but frames are short");
        out[at] = tag;
        out[at + 1..at + HEAD_LEN].copy_from_slice(&len.to_le_bytes());
    }
}

/// What stands before the payload of a frame on the wire: the payload itself is sent from where it lies.
#[must_use]
pub fn frame_head(from: From, header: &FrameHeader) -> [u8; HEAD_LEN + 1 + FRAME_HEADER_LEN] {
    let mut bytes = [0; HEAD_LEN + 1 + FRAME_HEADER_LEN];
    bytes[0] = FRAME;
    let len = header.stored_len + u32::try_from(1 + FRAME_HEADER_LEN).unwrap_or(u32::MAX);
    bytes[1..HEAD_LEN].copy_from_slice(&len.to_le_bytes());
    bytes[HEAD_LEN] = from as u8;
    bytes[HEAD_LEN + 1..].copy_from_slice(&header.encode());
    bytes
}

/// Takes items off the wire. Calls: [`Self::feed`] what came, [`Self::next_item`] until it says `None`.
///
/// Holds at most one item of the largest length, put together in memory of its own, and what was fed beyond it.
#[derive(Debug, Default)]
pub struct ItemReader {
    /// What came and belongs to no item yet.
    pieces: VecDeque<Bytes>,
    piece_bytes: usize,
    /// Tag and length of the item that is being put together, checked.
    head: Option<(u8, usize)>,
    body: Vec<u8>,
}

impl ItemReader {
    /// Takes bytes in.
    pub fn feed(&mut self, bytes: Bytes) {
        self.piece_bytes += bytes.len();
        if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
    }

    /// Bytes that are here and belong to no whole item yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        let head_len = if self.head.is_some() { HEAD_LEN } else { 0 };
        head_len + self.body.len() + self.piece_bytes
    }

    /// The next whole item; `None` until more bytes have come.
    ///
    /// # Errors
    /// [`ItemError`]: the peer breaks the protocol. Nothing that comes after that means anything.
    pub fn next_item(&mut self) -> Result<Option<Item>, ItemError> {
        if self.head.is_none() && !self.begin()? {
            return Ok(None);
        }
        let Some((tag, len)) = self.head else { return Ok(None) };
        let mut body = std::mem::take(&mut self.body);
        self.take(len - body.len(), |_, piece| body.extend_from_slice(piece));
        if body.len() < len {
            self.body = body;
            return Ok(None);
        }
        self.head = None;
        decode_body(tag, body.into()).map(Some)
    }

    /// Takes the head of an item, if it has come.
    fn begin(&mut self) -> Result<bool, ItemError> {
        if self.piece_bytes < HEAD_LEN {
            return Ok(false);
        }
        let mut bytes = [0; HEAD_LEN];
        self.take(HEAD_LEN, |at, piece| bytes[at..at + piece.len()].copy_from_slice(piece));
        let [tag, len @ ..] = bytes;
        let len = check_head(tag, u32::from_le_bytes(len))?;
        self.head = Some((tag, len));
        // Room for all of an ordinary item; a longer one grows as it comes.
        self.body.reserve_exact(len.min(BODY_RESERVE));
        Ok(true)
    }

    /// Hands out up to `most` of the bytes that came, each part with how many went before.
    fn take(&mut self, most: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut taken = 0;
        while taken < most
            && let Some(piece) = self.pieces.front_mut()
        {
            let part = piece.split_to(piece.len().min(most - taken));
            each(taken, &part);
            taken += part.len();
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.piece_bytes -= taken;
    }
}

/// Longest body of a frame.
const fn frame_bytes_max() -> usize {
    1 + FRAME_HEADER_LEN + Limits::DEFAULT.chunk_bytes as usize
}

/// The length of a body, if such an item can have it.
fn check_head(tag: u8, len: u32) -> Result<usize, ItemError> {
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    let fits = match tag {
        FRAME => (1 + FRAME_HEADER_LEN..=frame_bytes_max()).contains(&bytes),
        MISSING => bytes == ChunkId::LEN,
        REPLY => len <= REPLY_BYTES_MAX,
        TROUBLE => (1..=1 + MESSAGE_BYTES_MAX).contains(&bytes),
        _ => false,
    };
    if fits { Ok(bytes) } else { Err(ItemError::Head { tag, len }) }
}

fn decode_body(tag: u8, mut body: Bytes) -> Result<Item, ItemError> {
    match tag {
        FRAME => {
            let from = match body.get_u8() {
                1 => From::Site,
                2 => From::Gateway,
                value => return Err(ItemError::Value { field: "source of a frame", value }),
            };
            let header = FrameHeader::decode(&body)?;
            body.advance(FRAME_HEADER_LEN);
            if header.frame_len() != (FRAME_HEADER_LEN + body.len()) as u64 {
                return Err(ItemError::Head { tag, len: header.stored_len });
            }
            Ok(Item::Frame { from, header, payload: body })
        }
        MISSING => {
            let mut id = [0; ChunkId::LEN];
            body.copy_to_slice(&mut id);
            Ok(Item::Missing(ChunkId::from_bytes(id)))
        }
        REPLY => Ok(Item::Reply(cbor::decode("reply", &body, REPLY_BYTES_MAX.into())?)),
        _ => {
            let code = body.get_u8();
            let trouble = Trouble::from_u8(code).ok_or(ItemError::Value { field: "class of trouble", value: code })?;
            let message = String::from_utf8_lossy(&body).chars().filter(|letter| !letter.is_control()).collect();
            Ok(Item::Trouble { trouble, message })
        }
    }
}

//! What travels with a signature: the claim of a client, the statement of a gateway.

use forebay_format::{ChunkId, DecodeError, RefName, RepositoryId, SnapshotId, Timestamp, cbor};
use minicbor::{Decode, Encode};
use thiserror::Error;

/// Longest body of a signed message in bytes.
const BODY_BYTES_MAX: u64 = 4096;
/// Longest name of a tenant, job, dataset, class or tier in bytes.
const WORD_BYTES_MAX: usize = 255;

/// What a signature is for: one made for a purpose means nothing for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A [`Claim`].
    Claim,
    /// A [`Statement`].
    Statement,
}

impl Purpose {
    const fn context(self) -> &'static [u8] {
        match self {
            Self::Claim => b"forebay claim v0\0",
            Self::Statement => b"forebay ref statement v0\0",
        }
    }
}

/// A body and the Ed25519 signature over its purpose and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Signed {
    /// The public key that signed.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// Deterministic CBOR.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub body: Vec<u8>,
    /// The signature.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub signature: [u8; 64],
}

impl Signed {
    /// The bytes that are signed.
    #[must_use]
    pub fn message(purpose: Purpose, body: &[u8]) -> Vec<u8> {
        [purpose.context(), body].concat()
    }
}

/// Who asks for chunks, and who pays for them. Made by a client for one repository, and forwarded by edges.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Claim {
    /// The repository it is good for; `None` only finds out which repository there is.
    #[n(0)]
    pub repository: Option<RepositoryId>,
    /// Who pays.
    #[n(1)]
    pub tenant: String,
    /// For which job; may be empty.
    #[n(2)]
    pub job: String,
    /// The ref that is read; may be empty.
    #[n(3)]
    pub dataset: String,
    /// Cache class of what is fetched.
    #[n(4)]
    pub class: String,
    /// Link tier.
    #[n(5)]
    pub tier: String,
    /// Seconds since 1970 after which it is worthless.
    #[n(6)]
    pub not_after: u64,
}

/// What a ref is, as a gateway says. Fresh until it expires, whoever relays it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Statement {
    /// The repository.
    #[n(0)]
    pub repository: RepositoryId,
    /// The ref.
    #[n(1)]
    pub name: RefName,
    /// Sequence of the version.
    #[n(2)]
    pub sequence: u64,
    /// The version.
    #[n(3)]
    pub snapshot: SnapshotId,
    /// The version it was made from.
    #[n(4)]
    pub parent: Option<SnapshotId>,
    /// The chunk with its signature.
    #[n(5)]
    pub envelope: Option<ChunkId>,
    /// The step, if it is a checkpoint.
    #[n(6)]
    pub step: Option<u64>,
    /// Sequence of the newest version of the ref.
    #[n(7)]
    pub newest_sequence: u64,
    /// Newest log record that the gateway had read.
    #[n(8)]
    pub log_sequence: u64,
    /// When the version was made.
    #[n(9)]
    pub time: Timestamp,
    /// Seconds since 1970 after which it must be asked for again.
    #[n(10)]
    pub not_after: u64,
}

/// A signed body that is not what it should be. Whether the signature holds is for who has the keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignedError {
    /// Not the body of such a message.
    #[error("a signed {what} is damaged")]
    Body {
        /// Claim or statement.
        what: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
    /// A word is too long to be one.
    #[error("the {field} of a claim has {len} bytes; {WORD_BYTES_MAX} are the most")]
    Word {
        /// Which.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
    },
}

impl Claim {
    /// The bytes to sign.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`SignedError`].
    pub fn decode(body: &[u8]) -> Result<Self, SignedError> {
        let what = "claim";
        let claim: Self =
            cbor::decode(what, body, BODY_BYTES_MAX).map_err(|source| SignedError::Body { what, source })?;
        claim.check()?;
        Ok(claim)
    }

    /// Whether it can be sent.
    ///
    /// # Errors
    /// [`SignedError::Word`] names the part that is too long.
    pub fn check(&self) -> Result<(), SignedError> {
        let words = [
            ("tenant", &self.tenant),
            ("job", &self.job),
            ("dataset", &self.dataset),
            ("class", &self.class),
            ("tier", &self.tier),
        ];
        match words.into_iter().find(|(_, word)| word.len() > WORD_BYTES_MAX) {
            Some((field, word)) => Err(SignedError::Word { field, len: word.len() }),
            None => Ok(()),
        }
    }
}

impl Statement {
    /// The bytes to sign.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`SignedError::Body`].
    pub fn decode(body: &[u8]) -> Result<Self, SignedError> {
        let what = "statement";
        cbor::decode(what, body, BODY_BYTES_MAX).map_err(|source| SignedError::Body { what, source })
    }
}

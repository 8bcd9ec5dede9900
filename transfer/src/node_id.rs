//! The name of a client or node: its public key.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, VerifyingKey};
use thiserror::Error;

/// What stands before the key in a line of a public key file.
const PUBLIC_PREFIX: &str = "forebay-public-v0:";

/// An Ed25519 public key, written as 64 hexadecimal digits.
///
/// Not every 32 bytes are a key. An id may be written, compared and dialled without being one; then no
/// signature and no handshake ever matches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 32]);

impl NodeId {
    /// The id of these key bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Checks the signature of `message` by this key, by the strict rules: one signature has one form, and a
    /// key of small order, for which signatures can be made without its secret, signs nothing.
    ///
    /// # Errors
    /// [`VerifyError`]: the message is not to be believed.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> Result<(), VerifyError> {
        let key = VerifyingKey::from_bytes(&self.0).or(Err(VerifyError::NoKey { id: *self }))?;
        let verified = key.verify_strict(message, &Signature::from_bytes(signature));
        verified.or(Err(VerifyError::Mismatch { id: *self }))
    }

    /// Checks that this is a key that can be trusted: a point of the curve, and not one of small order, for which
    /// signatures can be made without its secret.
    ///
    /// # Errors
    /// [`VerifyError::NoKey`]: no signature by it is ever accepted.
    pub fn check(&self) -> Result<(), VerifyError> {
        match VerifyingKey::from_bytes(&self.0) {
            Ok(key) if !key.is_weak() => Ok(()),
            Ok(_) | Err(_) => Err(VerifyError::NoKey { id: *self }),
        }
    }

    /// The line of a public key file, without its end: `forebay-public-v0:` and the id.
    pub fn public_line(&self) -> String {
        format!("{PUBLIC_PREFIX}{self}")
    }

    /// Reads a line of a public key file.
    ///
    /// # Errors
    /// [`NodeIdError`] if it has not the prefix, or no id behind it.
    pub fn from_public_line(line: &str) -> Result<Self, NodeIdError> {
        let id = line.trim_end().strip_prefix(PUBLIC_PREFIX);
        id.ok_or(NodeIdError::Prefix { expected: PUBLIC_PREFIX })?.parse()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    /// Digits of both cases are read; written are the small ones.
    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(hex::FromHexError::InvalidHexCharacter { c, index }) => Err(NodeIdError::Digit { found: c, index }),
            Err(hex::FromHexError::OddLength | hex::FromHexError::InvalidStringLength) => {
                Err(NodeIdError::Length { chars: text.chars().count() })
            }
        }
    }
}

/// Why a text is no node id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeIdError {
    /// Not 64 characters.
    #[error("a node id has 64 hexadecimal digits, not {chars} characters")]
    Length {
        /// Characters that were given.
        chars: usize,
    },
    /// A character that is no hexadecimal digit.
    #[error("a node id has hexadecimal digits alone, not {found:?} at position {index}")]
    Digit {
        /// The character, as far as it is ASCII.
        found: char,
        /// Its position, from 0.
        index: usize,
    },
    /// A line of a key file that does not start as one.
    #[error("the line does not start with {expected}")]
    Prefix {
        /// What it starts with.
        expected: &'static str,
    },
}

/// Why a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The id is no point on the curve, or one of small order: nothing can be signed by it.
    #[error("{id} is not a public key")]
    NoKey {
        /// The id.
        id: NodeId,
    },
    /// The signature is not one of this key over this message.
    #[error("the signature is not by {id}")]
    Mismatch {
        /// The id.
        id: NodeId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_lines_round_trip() {
        let id = NodeId([0xa5; 32]);
        assert_eq!(id.public_line(), format!("forebay-public-v0:{}", "a5".repeat(32)));
        assert_eq!(NodeId::from_public_line(&format!("{}\n", id.public_line())), Ok(id));
        assert!(matches!(NodeId::from_public_line(&id.to_string()), Err(NodeIdError::Prefix { .. })));
    }

    #[test]
    fn what_is_wrong_with_an_id_is_said() {
        assert_eq!("ab".repeat(31).parse::<NodeId>(), Err(NodeIdError::Length { chars: 62 }));
        assert_eq!("abc".parse::<NodeId>(), Err(NodeIdError::Length { chars: 3 }));
        let text = format!("{}xy", "0".repeat(62));
        assert_eq!(text.parse::<NodeId>(), Err(NodeIdError::Digit { found: 'x', index: 62 }));
        assert_eq!("AB".repeat(32).parse(), Ok(NodeId([0xab; 32])));
    }

    #[test]
    fn a_key_of_small_order_signs_nothing() {
        // The neutral element: with R = it and s = 0 the plain equation holds for every message.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        let id = NodeId(neutral);
        assert_eq!(id.verify(b"anything", &signature), Err(VerifyError::Mismatch { id }));
    }

    #[test]
    fn bytes_that_are_no_key_sign_nothing() {
        let mut bytes = [0; 32];
        bytes[0] = 2;
        let id = NodeId(bytes);
        assert_eq!(id.verify(b"", &[0; 64]), Err(VerifyError::NoKey { id }));
    }
}

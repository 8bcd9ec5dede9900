//! Which keys are believed.

use std::collections::BTreeSet;

use forebay_transfer::NodeId;

/// The keys whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    /// Only these; `None` means any key, so that a signature shows who signed and no more.
    pub accepted: Option<BTreeSet<NodeId>>,
    /// Never these, whoever else accepts them.
    pub revoked: BTreeSet<NodeId>,
}

/// Why a text is no list of public keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A line that is neither a key nor empty.
    #[error("line {line} is no public key: write `forebay-public-v0:` and 64 hexadecimal digits, or the digits alone")]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Somebody's secret, where public keys belong.
    #[error("line {line} is a secret key; give the public key, in the file of the same name with .pub behind it")]
    Secret {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A key under which anybody can sign.
    #[error(
        "line {line}: {id} is no key that can be trusted: it is not on the curve, or signatures can be made without its secret"
    )]
    Weak {
        /// Number of the line, from 1.
        line: usize,
        /// The key.
        id: NodeId,
    },
    /// No line has a key.
    #[error("there is no public key in it")]
    Empty,
}

/// Reads public keys, one a line: `forebay-public-v0:` and 64 digits, or the digits alone. What stands behind a `#`, or
/// behind the key and a space, is a comment.
///
/// # Errors
/// [`KeysError`] names the line.
pub fn parse_keys(text: &str) -> Result<BTreeSet<NodeId>, KeysError> {
    let mut keys = BTreeSet::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let Some(word) = text.split_ascii_whitespace().next() else { continue };
        if word.starts_with("forebay-secret") {
            return Err(KeysError::Secret { line });
        }
        let id = parse_key(word).ok_or(KeysError::Line { line })?;
        id.check().map_err(|_weak| KeysError::Weak { line, id })?;
        keys.insert(id);
    }
    if keys.is_empty() { Err(KeysError::Empty) } else { Ok(keys) }
}

/// Reads one public key in either form.
#[must_use]
pub fn parse_key(word: &str) -> Option<NodeId> {
    NodeId::from_public_line(word).or_else(|_not_a_line| word.parse()).ok()
}

#[cfg(test)]
mod tests {
    use forebay_transfer::Identity;

    use super::*;

    fn id(number: u8) -> NodeId {
        Identity::from_random([number; 32]).node_id()
    }

    #[test]
    fn both_forms_and_comments_are_read() {
        let text = format!("# ours\n\n  {} release\r\n{}  # old\n\t\n", id(1).public_line(), id(2));
        assert_eq!(parse_keys(&text), Ok(BTreeSet::from([id(1), id(2)])));
        assert_eq!(parse_keys(&format!("{}\n{}", id(1), id(1).public_line())).unwrap().len(), 1);
    }

    #[test]
    fn other_lines_are_named() {
        let short = &id(1).to_string()[..63];
        assert_eq!(parse_keys(&format!("{}\n{short}\n", id(1))), Err(KeysError::Line { line: 2 }));
        assert_eq!(parse_keys("ssh-ed25519 AAAA"), Err(KeysError::Line { line: 1 }));
        assert_eq!(parse_keys(&format!("\nforebay-secret-v0:{}", id(1))), Err(KeysError::Secret { line: 2 }));
        assert_eq!(parse_keys("# nothing\n\n"), Err(KeysError::Empty));
    }

    #[test]
    fn keys_under_which_anybody_can_sign_are_refused() {
        // The neutral element, and points of order 2 and 4.
        for weak in [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ] {
            assert!(matches!(parse_keys(weak), Err(KeysError::Weak { line: 1, .. })), "{weak}");
        }
    }
}

//! What a part of a way may be.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A text, or the beginning of texts: `site:fra-1`, `site:*`, `*`.
///
/// Patterns form a tree: of two that fit one text, one fits everything the other fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    stem: std::borrow::Cow<'static, str>,
    /// Whether anything may follow.
    open: bool,
}

impl Pattern {
    /// `*`, which fits everything.
    pub const ANY: Self = Self { stem: std::borrow::Cow::Borrowed(""), open: true };

    /// Whether it fits a text.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        if self.open { text.starts_with(&*self.stem) } else { text == self.stem }
    }

    /// Which fits less: `Less` if this fits only what the other fits too; `None` if no text fits both.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            return Some(Ordering::Equal);
        }
        match (other.open && self.stem.starts_with(&*other.stem), self.open && other.stem.starts_with(&*self.stem)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stem, if self.open { "*" } else { "" })
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (stem, open) = text.strip_suffix('*').map_or((text, false), |stem| (stem, true));
        if text.is_empty() || stem.contains('*') || stem.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(PatternError { text: text.to_owned() });
        }
        Ok(Self { stem: stem.to_owned().into(), open })
    }
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} fits nothing: write a place such as gateway or site:fra-1, its beginning as site:*, or * for all")]
pub struct PatternError {
    /// The text as given.
    pub text: String,
}

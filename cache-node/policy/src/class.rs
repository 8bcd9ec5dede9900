//! Cache priority.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How much the loss of a cached chunk would hurt. The order is total: a greater class is lost later.
///
/// A class is not a link tier: it says what is kept, not how fast it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Fetched ahead of a reader, and not read yet.
    Prefetch,
    /// Kept while there is room.
    Opportunistic,
    /// What a running job reads. The class of whoever names none.
    Standard,
    /// A job stands still without it.
    Critical,
    /// Kept by order of an operator.
    Pinned,
    /// Not yet safe anywhere else: the only class that is never evicted.
    Unreplicated,
}

impl Class {
    /// All classes, the first to be lost first.
    pub const ALL: [Self; 6] =
        [Self::Prefetch, Self::Opportunistic, Self::Standard, Self::Critical, Self::Pinned, Self::Unreplicated];

    /// The name used on the command line, in traces and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Opportunistic => "opportunistic",
            Self::Standard => "standard",
            Self::Critical => "critical",
            Self::Pinned => "pinned",
            Self::Unreplicated => "unreplicated",
        }
    }

    /// Whether members of this class may be evicted at all.
    pub const fn is_evictable(self) -> bool {
        !matches!(self, Self::Unreplicated)
    }

    /// The place in [`Class::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = ParseClassError;

    fn from_str(text: &str) -> Result<Self, ParseClassError> {
        let named = Self::ALL.into_iter().find(|class| class.name() == text);
        named.ok_or_else(|| ParseClassError { text: text.to_owned() })
    }
}

/// A text that names no class.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no class: write pinned, critical, standard, opportunistic or prefetch")]
pub struct ParseClassError {
    /// The text as given.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_design() {
        assert!(Class::Pinned > Class::Critical);
        assert!(Class::Critical > Class::Standard);
        assert!(Class::Standard > Class::Opportunistic);
        assert!(Class::Opportunistic > Class::Prefetch);
        assert!(Class::ALL.is_sorted());
        assert!(Class::ALL.into_iter().enumerate().all(|(index, class)| class.index() == index));
    }

    #[test]
    fn only_unreplicated_is_never_evicted() {
        let kept: Vec<_> = Class::ALL.into_iter().filter(|class| !class.is_evictable()).collect();
        assert_eq!(kept, [Class::Unreplicated]);
    }

    #[test]
    fn names_round_trip() {
        for class in Class::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        assert!("Pinned".parse::<Class>().is_err());
    }
}

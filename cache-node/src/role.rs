//! What a node is trusted with.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// The role of a node, fixed for the life of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// At a provider site, and not trusted: it has no access to the origin, and what it serves is verified.
    Edge,
    /// Beside the origin, and trusted: it holds the credentials, meters what leaves, and enforces budgets.
    Gateway,
}

impl Role {
    /// Both roles.
    pub const ALL: [Self; 2] = [Self::Edge, Self::Gateway];

    /// The name used on the command line, in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Gateway => "gateway",
        }
    }

    /// Whether a node of this role may open the repository at its origin. An edge ignores one it is given.
    pub const fn opens_origin(self) -> bool {
        matches!(self, Self::Gateway)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let named = Self::ALL.into_iter().find(|role| role.name() == text);
        named.ok_or_else(|| ParseRoleError { text: text.to_owned() })
    }
}

/// A text that names no role.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no role: write edge or gateway")]
pub struct ParseRoleError {
    /// The text as given.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_are_those_of_json() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert_eq!("Edge".parse::<Role>(), Err(ParseRoleError { text: "Edge".to_owned() }));
    }

    #[test]
    fn only_a_gateway_opens_the_origin() {
        assert!(Role::Gateway.opens_origin());
        assert!(!Role::Edge.opens_origin());
    }
}

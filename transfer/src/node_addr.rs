//! `NODE_ID@HOST:PORT`, the one way to name a node.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::str::FromStr;

use thiserror::Error;

use crate::node_id::{NodeId, NodeIdError};

/// Longest host name, from DNS (RFC 1035 §2.3.4) without the last dot.
const NAME_BYTES_MAX: usize = 253;

/// A node: who it is, and where it may be reached. The connection counts only if the key answers there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddr {
    /// The key that must answer.
    pub id: NodeId,
    /// Where to look for it.
    pub host: Host,
    /// UDP port.
    pub port: NonZeroU16,
}

/// A host by number or by name. Numbers of version 6 are written in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// Not looked up.
    V4(Ipv4Addr),
    /// Not looked up.
    V6(Ipv6Addr),
    /// A name of letters, digits, `-`, `_` and dots, in small letters; to be looked up at each connection.
    Name(Box<str>),
}

impl NodeAddr {
    /// Reads a comma list, as in an environment variable. An empty text is an empty list.
    ///
    /// # Errors
    /// [`NodeAddrError`] for the first part that is no address; an empty part is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, NodeAddrError> {
        match text.trim() {
            "" => Ok(Vec::new()),
            list => list.split(',').map(|part| part.trim().parse()).collect(),
        }
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.id, self.host, self.port)
    }
}

impl FromStr for NodeAddr {
    type Err = NodeAddrError;

    fn from_str(text: &str) -> Result<Self, NodeAddrError> {
        let Some((id, place)) = text.split_once('@') else {
            return Err(NodeAddrError::IdMissing { text: text.to_owned() });
        };
        let id = id.parse().map_err(|source| NodeAddrError::Id { text: text.to_owned(), source })?;
        let (host, port) = split_place(place)?;
        let number = if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None };
        let port = number.ok_or_else(|| NodeAddrError::Port { text: port.to_owned() })?;
        Ok(Self { id, host: host.parse()?, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(number) => number.fmt(f),
            Self::V6(number) => write!(f, "[{number}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl FromStr for Host {
    type Err = NodeAddrError;

    fn from_str(text: &str) -> Result<Self, NodeAddrError> {
        let refused = || NodeAddrError::Host { text: text.to_owned() };
        if let Some(bracketed) = text.strip_prefix('[') {
            let number = bracketed.strip_suffix(']').and_then(|number| number.parse().ok());
            return number.map(Self::V6).ok_or_else(refused);
        }
        if let Ok(number) = text.parse() {
            return Ok(Self::V4(number));
        }
        let is_label = |label: &str| {
            let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
            plain && (1..=63).contains(&label.len())
        };
        // A name with digits alone at its end is a mistyped number (RFC 1123 §2.1).
        let last_is_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if text.len() > NAME_BYTES_MAX || last_is_number || !text.split('.').all(is_label) {
            return Err(refused());
        }
        Ok(Self::Name(text.to_ascii_lowercase().into()))
    }
}

/// Why a text is no address of a node. All of these are for the user to correct.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeAddrError {
    /// An address without the key that must answer there.
    #[error("{text:?} names no key: write NODE_ID@HOST:PORT, with the node_id that the node prints when it starts")]
    IdMissing {
        /// The text as given.
        text: String,
    },
    /// The part before the `@` is no node id.
    #[error("{text:?} does not start with a node id")]
    Id {
        /// The text as given.
        text: String,
        /// What is wrong with the id.
        #[source]
        source: NodeIdError,
    },
    /// No port behind the host.
    #[error("{text:?} names no port: write HOST:PORT")]
    PortMissing {
        /// The part behind the `@`.
        text: String,
    },
    /// Not a port.
    #[error("{text:?} is no port: write a number from 1 to 65535")]
    Port {
        /// The part behind the last colon.
        text: String,
    },
    /// A number of version 6 without brackets, whose end cannot be told from a port.
    #[error("{text:?} has several colons: write a version 6 address as [ADDRESS]:PORT")]
    BracketsMissing {
        /// The part behind the `@`.
        text: String,
    },
    /// Neither a number nor a name.
    #[error("{text:?} is no host: write a name, a version 4 address, or a version 6 address in brackets")]
    Host {
        /// The host as given.
        text: String,
    },
}

/// Splits `HOST:PORT` at the colon behind the host.
fn split_place(place: &str) -> Result<(&str, &str), NodeAddrError> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        Some(_) | None => return Err(NodeAddrError::PortMissing { text: place.to_owned() }),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(NodeAddrError::BracketsMissing { text: place.to_owned() });
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> String {
        "0f".repeat(32)
    }

    fn parse(place: &str) -> Result<NodeAddr, NodeAddrError> {
        format!("{}@{place}", id()).parse()
    }

    #[test]
    fn the_three_kinds_of_hosts_are_read() {
        let host = |place| parse(place).unwrap().host;
        assert_eq!(host("127.0.0.1:4433"), Host::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(host("[::1]:1"), Host::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(host("Node-1.site_a.example:65535"), Host::Name("node-1.site_a.example".into()));
    }

    #[test]
    fn a_bare_address_is_refused_with_what_to_write() {
        let error = "127.0.0.1:4433".parse::<NodeAddr>().unwrap_err();
        assert_eq!(error, NodeAddrError::IdMissing { text: "127.0.0.1:4433".to_owned() });
        assert_eq!(
            error.to_string(),
            r#""127.0.0.1:4433" names no key: write NODE_ID@HOST:PORT, with the node_id that the node prints when it starts"#
        );
        let short = "0f0f@host:1".parse::<NodeAddr>();
        assert!(matches!(short, Err(NodeAddrError::Id { source: NodeIdError::Length { chars: 4 }, .. })));
    }

    #[test]
    fn ports_are_1_to_65535() {
        for port in ["0", "65536", "+1", "", "-1", "http"] {
            let error = NodeAddrError::Port { text: port.to_owned() };
            assert_eq!(parse(&format!("host:{port}")), Err(error));
        }
        for place in ["host", "[::1]", ""] {
            assert_eq!(parse(place), Err(NodeAddrError::PortMissing { text: place.to_owned() }));
        }
    }

    #[test]
    fn hosts_that_are_none_are_refused() {
        assert!(matches!(parse("::1:4433"), Err(NodeAddrError::BracketsMissing { .. })));
        for host in
            ["", "[::1", "[1.2.3.4]", "[fe80::1%eth0]", "a..b", "a b", "1.2.3", "256.1.1.1", "ü", "a/b", "u@host"]
        {
            assert!(matches!(parse(&format!("{host}:1")), Err(NodeAddrError::Host { .. })), "{host}");
        }
        assert!(parse(&format!("{}:1", "a".repeat(64))).is_err());
    }

    #[test]
    fn lists_are_separated_by_commas() {
        assert_eq!(NodeAddr::parse_list(" "), Ok(Vec::new()));
        let list = NodeAddr::parse_list(&format!("{0}@a:1, {0}@[::1]:2", id())).unwrap();
        assert_eq!(list.iter().map(|addr| addr.port.get()).collect::<Vec<_>>(), [1, 2]);
        let trailing = NodeAddr::parse_list(&format!("{}@a:1,", id()));
        assert_eq!(trailing, Err(NodeAddrError::IdMissing { text: String::new() }));
    }

    proptest! {
        #[test]
        fn addresses_round_trip(
            id in any::<[u8; 32]>(),
            host in prop_oneof![
                any::<Ipv4Addr>().prop_map(Host::V4),
                any::<Ipv6Addr>().prop_map(Host::V6),
                "([a-z0-9_-]{1,9}\\.){0,3}[a-z][a-z0-9-]{0,9}".prop_map(|name| Host::Name(name.into())),
            ],
            port in any::<NonZeroU16>(),
        ) {
            let addr = NodeAddr { id: NodeId::from_bytes(id), host, port };
            prop_assert_eq!(addr.to_string().parse(), Ok(addr));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f@:.\\[\\],x-]{0,90}") {
            if let Ok(addr) = text.parse::<NodeAddr>() {
                prop_assert_eq!(addr.to_string().parse(), Ok(addr));
            }
            let _ = parse(&text).map(|addr| assert_eq!(addr.to_string().parse(), Ok(addr)));
        }
    }
}

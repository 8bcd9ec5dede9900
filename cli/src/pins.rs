//! What this user has seen of nodes: which gateway speaks for a repository, and how far its refs had come. A node that
//! shows another gateway, another repository or an older ref is not believed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_cas::ErrorClass;
use forebay_transfer::NodeId;
use forebay_transfer_proto::Statement;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The file of pins.
#[derive(Debug)]
pub(crate) struct Pins {
    path: PathBuf,
    seen: Seen,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    /// By node that was asked.
    nodes: BTreeMap<String, Pin>,
    /// Highest sequence seen, by repository and ref.
    refs: BTreeMap<String, u64>,
}

#[derive(Debug, PartialEq, Eq, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    repository: String,
    gateway: String,
}

/// What a check found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seeing {
    /// A node that was never asked before.
    New,
    /// All as before, or newer.
    Known,
}

impl Pins {
    /// Reads the pins beside the identity; none if there is no file.
    pub(crate) fn open(identity: &Path) -> Result<Self, Failure> {
        let mut path = identity.as_os_str().to_owned();
        path.push(".pins");
        let path = PathBuf::from(path);
        let seen = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let path = path.display();
                Failure::new(
                    ErrorClass::Auth,
                    format_args!(
                        "{path} is damaged ({error}); bring it back, or remove it and check the gateways yourself"
                    ),
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Seen::default(),
            Err(error) => {
                return Err(Failure::new(
                    ErrorClass::Failed,
                    format_args!("{} cannot be read: {error}", path.display()),
                ));
            }
        };
        Ok(Self { path, seen })
    }

    /// Compares a statement with what was seen before, and remembers it.
    pub(crate) fn check(&mut self, node: NodeId, gateway: NodeId, statement: &Statement) -> Result<Seeing, Failure> {
        let auth = |message: String| Err(Failure::new(ErrorClass::Auth, message));
        let before = self.seen.clone();
        let (repository, gateway) = (statement.repository.to_hex(), gateway.to_string());
        let path = self.path.display();
        let seeing = match self.seen.nodes.get(&node.to_string()) {
            Some(pin) if pin.repository != repository => {
                return auth(format!(
                    "node {node} spoke for repository {} and speaks for {repository} now; if that is meant, remove it from {path}",
                    pin.repository
                ));
            }
            Some(pin) if pin.gateway != gateway => {
                return auth(format!(
                    "node {node} relayed the gateway {} and relays {gateway} now; if that is meant, remove it from {path}",
                    pin.gateway
                ));
            }
            Some(_) => Seeing::Known,
            None => Seeing::New,
        };
        let key = format!("{repository}/{}", statement.name);
        let seen = self.seen.refs.get(&key).copied().unwrap_or_default();
        if statement.newest_sequence < seen {
            let (name, newest) = (&statement.name, statement.newest_sequence);
            return auth(format!(
                "{name} was at {seen} and is said to be at {newest}: a node or gateway turns it back"
            ));
        }
        self.seen.nodes.insert(node.to_string(), Pin { repository, gateway });
        self.seen.refs.insert(key, statement.newest_sequence);
        if self.seen != before {
            self.save()?;
        }
        Ok(seeing)
    }

    fn save(&self) -> Result<(), Failure> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        let save = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&serde_json::to_vec_pretty(&self.seen)?)?;
            file.as_file().sync_all()?;
            file.persist(&self.path)?;
            Ok(())
        };
        save().map_err(|error| {
            Failure::new(ErrorClass::Space, format_args!("{} cannot be written: {error}", self.path.display()))
        })
    }
}

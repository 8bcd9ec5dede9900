//! A cache node: the process at a provider site, or beside the origin, that keeps chunks near the GPUs.
//!
//! An edge keeps frames on disk and asks its gateway once for what several clients want; a gateway reads the origin,
//! says what refs are, and bills what leaves.
//!
//! Types to know:
//!
//! * [`Node`] is a running node; its [`Duty`] is an [`Edge`] or a [`Gateway`].
//! * [`Store`] is the disk cache; the decisions about it are those of `forebay-policy`.
//! * [`Bill`] counts and budgets; [`router`] answers HTTP, which carries no secrets and takes no orders.
//!
//! Not here: the command line, the decisions of the cache (`forebay-policy`), QUIC itself (`forebay-transfer`).
//!
//! ```
//! use forebay_cache_node::Store;
//! use forebay_policy::EvictionConfig;
//!
//! let folder = tempfile::tempdir()?;
//! let store = Store::open(folder.path(), &EvictionConfig::with_capacity(1 << 30))?;
//! assert_eq!(store.stats().entries, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bill;
mod counters;
pub mod edge;
mod gate;
pub mod gateway;
pub mod http;
mod manage;
pub mod node;
mod pace;
pub mod role;
pub mod store;
mod turns;

pub use bill::Bill;
pub use edge::Edge;
pub use gateway::Gateway;
pub use http::{CacheStatus, NodeStatus, StatusSource, router};
pub use node::{Duty, Node, NodeConfig, StartError};
pub use role::{ParseRoleError, Role};
pub use store::{Store, StoreError, StoreStats};

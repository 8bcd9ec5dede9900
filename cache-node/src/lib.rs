//! A cache node: the process at a provider site, or beside the origin, that keeps chunks near the GPUs.
//!
//! Its first part is what an operator and a load balancer ask it over HTTP: whether it lives, whether it
//! serves, and who it is.
//!
//! Types to know:
//!
//! * [`Role`] says whether the node is trusted with the origin.
//! * [`NodeStatus`] is the node's answer about itself.
//! * [`StatusSource`] is what [`router`] asks for both; the running node implements it.
//!
//! Not here: the command line, the decisions of the cache (`forebay-policy`), and chunks over QUIC
//! (`forebay-transfer`). HTTP carries no secrets and takes no orders.
//!
//! ```
//! use std::sync::Arc;
//! use forebay_cache_node::{NodeStatus, Role, StatusSource, router};
//! use forebay_transfer::NodeId;
//!
//! #[derive(Debug)]
//! struct Fresh;
//!
//! impl StatusSource for Fresh {
//!     fn is_ready(&self) -> bool {
//!         false
//!     }
//!
//!     fn status(&self) -> NodeStatus {
//!         NodeStatus {
//!             role: Role::Edge,
//!             node_id: NodeId::from_bytes([7; 32]),
//!             site: Some("akash-7".to_owned()),
//!             region: None,
//!             provider: None,
//!             uptime_s: 0,
//!         }
//!     }
//! }
//!
//! let app: axum::Router = router(Arc::new(Fresh));
//! ```

pub mod http;
pub mod role;

pub use http::{NodeStatus, StatusSource, router};
pub use role::{ParseRoleError, Role};

//! Who talks to whom, and the driver that does: identities, TLS with pinned keys, QUIC, chunks from nodes.
//!
//! Every client and node has an Ed25519 key, and the public key is its id. There is no certificate authority:
//! whoever names a node names its key, so that an address alone is never enough to be trusted.
//!
//! Types to know:
//!
//! * [`NodeId`] is a public key, and checks signatures.
//! * [`Identity`] is the secret key, in memory and in its file.
//! * [`NodeAddr`] is `NODE_ID@HOST:PORT`.
//! * [`Server`] and [`Service`] answer requests; [`Client`] asks; [`NodeSource`] is a source of chunks over it.
//!
//! Not here: what is sent (`forebay-transfer-proto`), which keys are trusted for what (the key store of
//! `forebay-cli` and the gateways), and what a node caches.
//!
//! ```
//! use forebay_transfer::{Identity, NodeAddr};
//!
//! let identity = Identity::from_random([7; 32]);
//! let addr: NodeAddr = format!("{}@[::1]:4433", identity.node_id()).parse()?;
//! assert_eq!((addr.id, addr.host.to_string().as_str(), addr.port.get()), (identity.node_id(), "[::1]", 4433));
//!
//! let signature = identity.sign(b"statement");
//! assert!(addr.id.verify(b"statement", &signature).is_ok());
//! # Ok::<(), forebay_transfer::NodeAddrError>(())
//! ```

pub mod authority;
pub mod client;
mod endpoint;
pub mod identity;
pub mod node_addr;
pub mod node_id;
pub mod server;
pub mod source;
mod tls;

pub use authority::{ClaimMaker, sign, signer};
pub use client::{Client, PeerError};
pub use identity::{Identity, IdentityError};
pub use node_addr::{Host, NodeAddr, NodeAddrError};
pub use node_id::{NodeId, NodeIdError, VerifyError};
pub use server::{Answer, Server, Service};
pub use source::NodeSource;

//! Arguments of `forebay node`, and of reading through nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Subcommand};
use forebay_cache_node::Role;
use forebay_policy::Class;
use forebay_transfer_proto::LinkTier;
use jiff::SignedDuration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    /// edge: a cache at a site, without access to the repository; gateway: beside the origin, with its credentials
    #[arg(long, default_value = "edge")]
    pub(crate) role: Role,
    /// UDP address to serve on; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:4433")]
    pub(crate) listen: SocketAddr,
    /// TCP address for health, metrics and status; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8433")]
    pub(crate) http: SocketAddr,
    /// Bytes that an edge may keep on disk
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    pub(crate) capacity: ByteSize,
    /// Where an edge asks for what it has not, NODE_ID@HOST:PORT; may be repeated
    #[arg(long, value_name = "NODE")]
    pub(crate) upstream: Vec<String>,
    /// The site it stands at
    #[arg(long, value_name = "S")]
    pub(crate) site: Option<String>,
    /// The region of the site
    #[arg(long, value_name = "R")]
    pub(crate) region: Option<String>,
    /// Who rents the site out
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,
    /// Bytes a second that it sends to all clients together; each tenant's share of a tier is limited by the tier
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<ByteSize>,
    /// Keys that may ask a gateway and whom they may bill: lines of a public key and a tenant; all may if left out
    #[arg(long, value_name = "FILE")]
    pub(crate) clients: Option<PathBuf>,
    /// Rate card of a gateway (TOML) [env: FOREBAY_RATES]
    #[arg(long, value_name = "FILE")]
    pub(crate) rates: Option<PathBuf>,
}

/// What can be asked of a node that runs.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show how a node is, and what the link tiers mean
    Status {
        /// NODE_ID@HOST:PORT
        node: String,
    },
    /// Make a node end what it has begun, and leave; needs the node's own key (--identity)
    Drain {
        /// NODE_ID@HOST:PORT
        node: String,
        /// Time until it is gone, like 30s or 5m
        #[arg(long, value_name = "D", default_value = "30s")]
        within: SignedDuration,
    },
}

/// Arguments of `forebay warm`.
#[derive(Debug, Args)]
pub(crate) struct WarmArgs {
    /// NAME[@VERSION]
    pub(crate) version: String,
    /// How many of the nodes get it, the first ones; all if left out
    #[arg(long, value_name = "R")]
    pub(crate) replicas: Option<usize>,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// How to read through nodes.
#[derive(Debug, Clone, Args)]
pub(crate) struct TransferArgs {
    /// How long nodes keep it: pinned, critical, standard, opportunistic or prefetch
    #[arg(long, value_name = "C", default_value = "standard")]
    pub(crate) class: Class,
    /// Speed of the link, which sets windows and price: 10g, 40g or 100g
    #[arg(long, value_name = "T", default_value = "10g")]
    pub(crate) tier: LinkTier,
}

impl Default for TransferArgs {
    fn default() -> Self {
        Self { class: Class::Standard, tier: LinkTier::Gbit10 }
    }
}

//! The content-addressed store of Forebay: a repository in any object store or plain folder.
//!
//! Three types to know: [`Repository`] (configuration, log, index), [`ChunkReader`] (verified chunks) and
//! [`origin::Origin`] (where the repository lives). [`push::push`], [`fetch::fetch`], [`verify::verify`] and [`gc::collect`] are the
//! operations; each takes a [`Progress`] that it counts on and a [`Cancel`] that it looks at.
//!
//! What holds them together: the log record is the only commit point; packs, then the segment that lists them, then the
//! record, each durable before the next; the index is a cache; every byte is verified against its id before it is handed
//! out. Not here: the wire, nodes, mounts, the command line.

mod cancel;
mod class;
mod layout;
mod progress;
mod seen;

pub mod budgets;
pub mod chunker;
pub mod clock;
pub mod codec;
pub mod content;
pub mod diff;
pub mod fetch;
pub mod gc;
pub mod index;
pub mod journal;
pub mod ledger;
pub mod log;
pub mod numbers;
pub mod origin;
pub mod packer;
pub mod pattern;
pub mod pieces;
pub mod push;
pub mod repair;
pub mod repository;
pub mod rng;
pub mod run;
pub mod scan;
pub mod source;
pub mod spool;
pub mod sync;
pub mod task;
pub mod tree;
pub mod usage;
pub mod verify;

pub use crate::cancel::Cancel;
pub use crate::class::{Classify, ErrorClass, chain};
pub use crate::progress::{Collected, Notices, Progress, Warning};
pub use crate::repository::{ChunkReader, OpenError, ReadError, Repository, ResolveError, Surroundings};

//! Forebay snapshots as a read-only file system.
//!
//! Types to know:
//!
//! * [`Tree`] answers what a file system is asked, from a [`Source`] of verified pieces, with bounded memory. It knows
//!   no kernel and is tested without one.
//! * [`Server`] mounts a tree through FUSE; [`MountPoint`] and [`our_mount`] look after the folder.
//! * [`InodeTable`] gives each path its number and counts the kernel's references to it. [`Ino`] is such a number: never
//!   0, never 2^32 - 1.
//!
//! A snapshot never changes, so the kernel may keep names, attributes and bytes for ever. Bytes that cannot be had whole
//! fail the reads that want them, and nothing else; the next read tries again.
//!
//! Not here: how pieces come (origin or nodes), writing, following a name to its next version.
//!
//! ```
//! use forebay_mount::{Ino, InodeTable};
//!
//! let mut table = InodeTable::new();
//! let folder = table.lookup(Ino::ROOT, b"data")?;
//! let file = table.lookup(folder, b"train.bin")?;
//! assert_eq!(table.path(file), Some(vec![&b"data"[..], b"train.bin"]));
//!
//! // Another mount of the same tree, in another order, gives the same numbers.
//! let mut again = InodeTable::new();
//! again.lookup(Ino::ROOT, b"other")?;
//! assert_eq!(again.lookup(Ino::ROOT, b"data")?, folder);
//! # Ok::<(), forebay_mount::InodeError>(())
//! ```

mod cache;
mod chunks;
mod error;
#[cfg(test)]
mod fake;
mod folder;
mod fs;
pub mod inode;
mod layout;
mod links;
mod mounts;
mod neighbours;
mod pool;
mod read_ahead;
mod server;
mod source;
mod tree;

pub use error::TreeError;
pub use folder::Access;
pub use inode::{Ino, InodeError, InodeTable};
pub use mounts::{Mount, MountPoint, MountPointError, is_dead, our_mount, unmount};
pub use server::{Server, ServerError, ServerOptions};
pub use source::Source;
pub use tree::{Attributes, Listed, NodeKind, ReadAhead, Tree, TreeOptions};

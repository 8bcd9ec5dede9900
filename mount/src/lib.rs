//! Forebay snapshots as a read-only file system.
//!
//! The first part is the numbering of files: what the kernel, `find`, `rsync` and programs that keep file
//! handles see as the inode number. It has no IO, so that it can be tested without a mount.
//!
//! Types to know:
//!
//! * [`InodeTable`] gives each path its number and counts the kernel's references to it.
//! * [`Ino`] is such a number: never 0, never 2^32 - 1.
//! * [`InodeError`] is a request that a correct kernel does not make.
//!
//! Not here: which names exist in a folder (the manifest says so), file contents, caching, QUIC.
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

pub mod inode;

pub use inode::{Ino, InodeError, InodeTable};

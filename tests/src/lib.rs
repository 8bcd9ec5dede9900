//! The harness of the end-to-end tests: it runs the real `forebay` binary and looks at it from outside.
//!
//! Three types to know: [`Sandbox`] (a folder of its own, an environment of its own, [`Sandbox::run`]),
//! [`Outcome`] (what a run said, checked for panics and escape codes before a test sees it) and
//! [`S3Server`] (an origin that can be slow, cut off, silent or wrong on request, with a log of every request).
//! Around nodes: [`Serving`] runs one, [`Relay`] stands before it, [`Stranger`] misuses it, [`Rogue`] is one that lies.
//! [`tree_of`] turns a folder into a value that can be compared.
//!
//! Non-goals: nothing here calls into the crates that are tested, and no test reads their private state.
//!
//! The binary is `$FOREBAY_BIN`, else the `forebay` that lies in the target folder of the running test.
#![allow(clippy::disallowed_methods, reason = "real processes need real time, threads and the environment")]
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test helper reports a failed check")]

mod content;
mod forge;
mod mounted;
mod nodes;
mod outcome;
mod peer;
mod relay;
mod rogue;
mod running;
mod s3;
mod sandbox;
mod tree;

pub use content::{Seeded, rnd, safetensors, write_rnd, write_rnd_file};
pub use forge::{
    Forge, Placed, SignedStatement, dir_entry, file_entry, inline_file, link_entry, snapshot_of, with_totals,
};
pub use mounted::{Mounted, mount_sources};
pub use nodes::{Serving, client};
pub use outcome::{Class, Outcome, bytes_of, field, raw_path, text};
pub use peer::{Hello, Key, Stranger};
pub use relay::{Relay, Way};
pub use rogue::{Evil, Rogue};
pub use running::{Running, wait_until};
pub use s3::{Action, LoggedRequest, Rule, S3Server};
pub use sandbox::{Command, Sandbox, Stdout, User, is_root, skipped, soak};
pub use tree::{
    Entry, Kind, Tree, allocated_bytes, assert_tree_equal, contains_bytes, files_below, make_fifo, set_mtime, tree_of,
};

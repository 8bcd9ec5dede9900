//! One module a command.

pub(crate) mod about;
pub(crate) mod cat;
pub(crate) mod checkpoint;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod egress;
pub(crate) mod fetch;
pub(crate) mod gc;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod ls;
pub(crate) mod mount;
pub(crate) mod node;
pub(crate) mod push;
pub(crate) mod refs;
pub(crate) mod umount;
pub(crate) mod verify;
pub(crate) mod warm;

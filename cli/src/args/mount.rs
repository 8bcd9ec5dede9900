//! `forebay mount` and `forebay umount`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct MountArgs {
    /// NAME[@VERSION]
    pub(crate) version: String,
    /// Empty folder to show it in
    pub(crate) dir: PathBuf,
    /// Stay, and unmount at SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Let other users look at it too, as the modes of the files allow
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Bytes to read ahead of a program that reads in order; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = super::size)]
    pub(crate) read_ahead: u64,
    /// Serve without a terminal; what `forebay mount` starts
    #[arg(long, hide = true, requires = "foreground")]
    pub(crate) detached: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UmountArgs {
    /// Folder that something is mounted on
    pub(crate) dir: PathBuf,
    /// Take it away at once; programs that have files open there may go on until they are done
    #[arg(long)]
    pub(crate) lazy: bool,
}

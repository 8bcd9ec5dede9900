//! What can be typed.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets mean what may be left out"
)]

pub(crate) mod checkpoint;
pub(crate) mod egress;
pub(crate) mod key;
mod mount;
pub(crate) mod node;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use forebay_cas::chunker::PROFILES;
use forebay_cas::push::Patching;
use jiff::SignedDuration;

pub(crate) use self::mount::{MountArgs, UmountArgs};
use crate::failure::{Failure, USAGE_EXIT};
use crate::output::Output;

/// Keeps datasets and checkpoints right in front of rented, scattered, idle GPUs.
#[derive(Debug, Parser)]
#[command(name = "forebay", disable_version_flag = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    /// Print the version
    #[arg(long, short = 'V')]
    pub(crate) version: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Settings for every command; each can also stand in the environment or the configuration file.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Repository: a folder, file:///path, s3://bucket/prefix, gs://… or az://… [env: FOREBAY_REPO]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) repo: Option<String>,

    /// Read through this node, NODE_ID@HOST:PORT; may be repeated, in order of preference [env: FOREBAY_NODES]
    #[arg(long, global = true, value_name = "NODE")]
    pub(crate) node: Vec<String>,

    /// Read from the repository itself, whatever nodes are set
    #[arg(long, global = true)]
    pub(crate) direct: bool,

    /// Secret key of this client or node; made on first use [env: FOREBAY_IDENTITY]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,

    /// Who pays [env: FOREBAY_TENANT]
    #[arg(long, global = true, value_name = "T")]
    pub(crate) tenant: Option<String>,

    /// For which job [env: FOREBAY_JOB]
    #[arg(long, global = true, value_name = "J")]
    pub(crate) job: Option<String>,

    /// Folder for what can be made again: index, copies [env: FOREBAY_CACHE]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Use only what is here already
    #[arg(long, global = true)]
    pub(crate) offline: bool,

    /// Memory that a mount may take in all [env: FOREBAY_MEMORY] [default: 512MiB]
    #[arg(long, global = true, value_name = "SIZE")]
    pub(crate) memory: Option<String>,

    /// Threads that hash and encode [default: number of cores]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Configuration file (TOML) [env: FOREBAY_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON lines only
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// No progress and no warnings
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,

    /// Say more; twice for everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) color: ColorArg,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorArg {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a repository
    Init(InitArgs),
    /// Store a folder as the next version of a name
    Push(PushArgs),
    /// Restore a version into a folder
    Fetch(FetchArgs),
    /// Show a version as a read-only folder
    Mount(MountArgs),
    /// Take a mount away
    Umount(UmountArgs),
    /// Print a file of a version
    Cat {
        /// NAME[@VERSION]:PATH
        path: OsString,
    },
    /// List what is in a version
    Ls(LsArgs),
    /// Serve as a node: an edge at a site, or the gateway beside the origin
    Node(node::NodeArgs),
    /// Fill the caches of nodes with a version, ahead of the jobs that read it
    Warm(node::WarmArgs),
    /// List all names
    Refs,
    /// List the versions of a name
    Log {
        /// NAME
        name: String,
    },
    /// Show what changed between two versions
    Diff {
        /// NAME[@VERSION]
        old: String,
        /// NAME[@VERSION]
        new: String,
    },
    /// Remove a name with all its versions
    Rm {
        /// NAME
        name: String,
    },
    /// Prove that everything is there and right
    Verify(VerifyArgs),
    /// Delete what no version needs
    Gc(GcArgs),
    /// Show how much names take and share
    Du {
        /// NAME; all if left out
        name: Option<String>,
    },
    /// What was sent, what it cost, and limits on it
    Egress {
        #[command(subcommand)]
        command: egress::EgressCommand,
    },
    /// Checkpoints of training runs
    Checkpoint {
        #[command(subcommand)]
        command: checkpoint::CheckpointCommand,
    },
    /// Keys that sign, and which are trusted
    Key {
        #[command(subcommand)]
        command: key::KeyCommand,
    },
    /// Settings
    Config {
        #[command(subcommand)]
        show: ConfigCommand,
    },
    /// Print completions for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write manual pages
    Man {
        /// Folder to write into
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each setting and where it comes from
    Show,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Chunk sizes: by their average 64k, 256k (default) or 512k, or MIN/AVG/MAX[/LEVEL] in KiB
    #[arg(long, value_name = "P", default_value = PROFILES[0].name)]
    pub(crate) chunk_profile: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PushArgs {
    /// Folder (or file) to store
    pub(crate) path: PathBuf,
    /// Name to store it under
    pub(crate) name: String,
    /// Only if the name is at this version now: digits of its id, or `none`
    #[arg(long, value_name = "ID|none")]
    pub(crate) expect: Option<String>,
    /// Label of the version; may be repeated
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Vec<String>,
    /// Leave out what matches, in the manner of .gitignore; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Store the version although files changed while they were read
    #[arg(long)]
    pub(crate) allow_changed: bool,
    /// Store changed chunks as patches of the old ones: `auto` if the repository is a folder, `always` also where old chunks
    /// have to be read from a remote store
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) patch: Patch,
    /// Only find out what would be stored
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

/// When `push` looks for old chunks to patch.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum Patch {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Patch> for Patching {
    fn from(patch: Patch) -> Self {
        match patch {
            Patch::Auto => Self::Local,
            Patch::Always => Self::Always,
            Patch::Never => Self::Never,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FetchArgs {
    /// NAME[@VERSION]
    pub(crate) version: String,
    /// Folder to restore into
    pub(crate) dest: PathBuf,
    /// Only what matches, in the manner of .gitignore; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out what matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Remove from the folder what the version does not have
    #[arg(long)]
    pub(crate) delete: bool,
    #[command(flatten)]
    pub(crate) transfer: node::TransferArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LsArgs {
    /// NAME[@VERSION][:PATH]
    pub(crate) path: OsString,
    /// Modes, sizes and times
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Everything below
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GcArgs {
    /// Only find out what would be deleted
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// How long what is no longer needed stays, for who still reads it
    #[arg(long, value_name = "D", default_value = "24h")]
    pub(crate) grace: SignedDuration,
    /// Forget all but so many of the newest versions of each name
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_last: Option<u64>,
    /// Forget versions that are older, but the newest of each name
    #[arg(long, value_name = "D")]
    pub(crate) keep_within: Option<SignedDuration>,
    /// Delete also if no name is left at all
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// NAME[@VERSION]; every pack and every version if left out
    pub(crate) version: Option<String>,
    /// Read only part of the files (of a version) or packs (of everything)
    #[arg(long, value_name = "N%", value_parser = percentage)]
    pub(crate) sample: Option<f64>,
    /// Store again what is damaged, from --from, from the nodes of --node and from what is whole here, and replace damaged
    /// objects; these are kept under quarantine/
    #[arg(long)]
    pub(crate) repair: bool,
    /// Where lost chunks may be: the folder that was pushed or a copy of it, or another repository
    #[arg(long, value_name = "PATH|URL", requires = "repair")]
    pub(crate) from: Vec<String>,
}

/// `64KiB`, `1GB`, plain bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<bytesize::ByteSize>();
    size.map(|size| size.as_u64()).map_err(|_error| "write a size such as 64KiB, 1GB or 1000000".to_owned())
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("write a percentage above 0 and up to 100, such as 10%".to_owned()),
    }
}

/// Whether `--json` was typed, known before anything is parsed, so that wrong arguments are answered in JSON too.
pub(crate) fn asks_for_json() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Answers arguments that do not parse, and `--help`.
pub(crate) fn refuse(error: &clap::Error, json: bool) -> ExitCode {
    let is_help = !error.use_stderr();
    if json && !is_help {
        let message = error.render().to_string();
        let message = message.trim().trim_start_matches("error: ").replace('\n', " ");
        Output::new(true, false, ColorArg::Never).failure(&Failure::usage(message));
        return ExitCode::from(USAGE_EXIT);
    }
    // Help that nobody reads any more is no error.
    let _closed = error.print();
    if is_help { ExitCode::SUCCESS } else { ExitCode::from(USAGE_EXIT) }
}

//! `forebay key …`

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key: FILE (secret) and FILE.pub
    Generate {
        /// File for the secret
        file: PathBuf,
    },
    /// Print the public side of a key
    Show {
        /// Secret or public key
        file: PathBuf,
    },
    /// The keys that are trusted or revoked on this machine
    Trust {
        #[command(subcommand)]
        command: TrustCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Trust a public key
    Add {
        /// File of public keys, or 64 hexadecimal digits
        #[arg(value_name = "FILE|ID")]
        key: String,
        /// Whose it is
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
    },
    /// List trusted and revoked keys
    Ls,
    /// Refuse a public key for good, whoever names it
    Revoke {
        /// File of public keys, or 64 hexadecimal digits
        #[arg(value_name = "FILE|ID")]
        key: String,
    },
}

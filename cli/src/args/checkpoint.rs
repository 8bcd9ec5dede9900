//! `forebay checkpoint …`

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Store files as the checkpoint of a training step
    Save(SaveArgs),
    /// List the checkpoints of a run
    Ls {
        /// RUN
        run: String,
    },
    /// Show files, tensors, signature and completeness
    Show {
        /// RUN@STEP or RUN@latest
        checkpoint: String,
    },
    /// Restore a checkpoint byte for byte
    Restore(RestoreArgs),
    /// Prove the signature and every byte
    Verify {
        /// RUN@STEP or RUN@latest
        checkpoint: String,
        /// Public keys, one a line, of which one must have signed
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
    /// Forget old checkpoints of a run; `forebay gc` deletes what they alone needed
    Prune(PruneArgs),
    /// Bring a checkpoint into the memory of a device, verified there
    Stage(StageArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PruneArgs {
    /// RUN
    pub(crate) run: String,
    /// Keep so many of the newest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), required_unless_present = "keep_every")]
    pub(crate) keep_last: Option<u64>,
    /// Keep steps that this divides, and the latest
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SaveArgs {
    /// Folder whose content is the checkpoint; or several folders and files, each by its last name
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Run to store it under
    pub(crate) run: String,
    /// Training step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    pub(crate) step: u64,
    /// Sign with this secret key
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// The checkpoint that training went on from [default: the newest version of the run]
    #[arg(long, value_name = "RUN@STEP")]
    pub(crate) parent: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RestoreArgs {
    /// RUN@STEP or RUN@latest
    pub(crate) checkpoint: String,
    /// Folder to restore into
    pub(crate) dest: PathBuf,
    /// Only if one of these public keys, one a line, has signed
    #[arg(long, value_name = "KEYS")]
    pub(crate) require_signature: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StageArgs {
    /// RUN@STEP or RUN@latest
    pub(crate) checkpoint: String,
    /// host or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub(crate) device: Device,
    /// Measure each stage, beside a plain loop of copies
    #[arg(long)]
    pub(crate) bench: bool,
    /// Only if one of these public keys, one a line, has signed
    #[arg(long, value_name = "KEYS")]
    pub(crate) require_signature: Option<PathBuf>,
}

/// Where to stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Memory of this machine.
    Host,
    /// The CUDA device with this number.
    Cuda(usize),
}

fn device(text: &str) -> Result<Device, String> {
    let cuda = || text.strip_prefix("cuda:")?.parse().ok().filter(|ordinal| *ordinal < 1024).map(Device::Cuda);
    match text {
        "host" => Ok(Device::Host),
        _ => cuda().ok_or_else(|| "write host, or cuda: and the number of the device, such as cuda:0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        assert_eq!(device("host"), Ok(Device::Host));
        assert_eq!(device("cuda:3"), Ok(Device::Cuda(3)));
        for bad in ["", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "Host", "rocm:0"] {
            assert!(device(bad).is_err(), "{bad:?}");
        }
    }
}

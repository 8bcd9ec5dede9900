//! Why a checkpoint is not on a device.

use forebay_cas::{Classify, ErrorClass, ReadError};

/// Staging failed; nothing of what is on the device is to be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file of it cannot be read.
    #[error("{} cannot be staged", String::from_utf8_lossy(path))]
    File {
        /// Path in the checkpoint, raw bytes.
        path: Vec<u8>,
        /// Why.
        source: ReadError,
    },
    /// What landed is not the file.
    #[error(
        "{} is not what it should be on {device}: the memory of this machine or of the device may be faulty",
        String::from_utf8_lossy(path)
    )]
    Landed {
        /// Path in the checkpoint, raw bytes.
        path: Vec<u8>,
        /// The device.
        device: String,
    },
    /// There is not so much memory.
    #[error(
        "{needed} bytes are needed on {device} and {available} are available: stage a smaller checkpoint, or on another device"
    )]
    Memory {
        /// The device.
        device: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },
    /// Memory of the host cannot be had.
    #[error("{len} bytes of memory cannot be mapped")]
    Map {
        /// Bytes asked for.
        len: u64,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no CUDA driver.
    #[error(
        "cuda:{ordinal} cannot be used: libcuda.so, the library of NVIDIA's driver, is not on this machine; use --device host"
    )]
    NoDriver {
        /// The device asked for.
        ordinal: usize,
    },
    /// The CUDA driver failed.
    #[error("cuda:{ordinal} failed while {doing}; use --device host if it has no such device")]
    Cuda {
        /// The device.
        ordinal: usize,
        /// What was being done.
        doing: &'static str,
        /// What the driver says.
        source: cudarc::driver::DriverError,
    },
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Classify for StageError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read(source) | Self::File { source, .. } => source.class(),
            Self::Landed { .. } => ErrorClass::Corrupt,
            Self::Memory { .. } => ErrorClass::Space,
            Self::Map { .. } | Self::NoDriver { .. } | Self::Cuda { .. } => ErrorClass::Failed,
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Read(source) | Self::File { source, .. } => source.damaged_index(),
            _ => None,
        }
    }
}

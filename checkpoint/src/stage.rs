//! Bringing a checkpoint into the memory of a device: read, decode, verify, into slabs, and from slabs to the device,
//! all at once with bounded memory.
//!
//! On the device the files lie one after the other, each from a multiple of 4 KiB. [`Windows`](window::Windows) cuts that
//! space into pieces of at most a slab; threads take windows in order, read their chunks and verify each against its id;
//! one thread hands full slabs to the [`DeviceSink`], which gives them back when their bytes have been copied. At the end
//! what lies on the device is hashed and compared with the digests of the manifest: only that makes it verified.

mod cuda;
mod digest;
mod error;
mod host;
mod pipeline;
mod window;

pub use self::cuda::{CudaSink, CudaSlab};
pub use self::error::StageError;
pub use self::host::{HostSink, HostSlab};
pub use self::pipeline::{StageOptions, StageReport, stage};
use forebay_format::FileDigest;

/// Bytes of one slab: large enough that a copy costs nothing beside its bytes, and no chunk is longer.
pub const SLAB_BYTES: usize = 16 << 20;
/// Slabs of one stage, 256 MiB: enough for reading, hashing and copying to overlap.
pub const SLABS_MAX: usize = 16;
/// Files start at multiples of this on a device: a page, so that each can be handed on by itself.
pub const FILE_ALIGNMENT: u64 = 4096;

/// Memory that bytes pass through on their way to a device.
pub trait Slab: Send {
    /// All [`SLAB_BYTES`] of it.
    ///
    /// # Errors
    /// What the device says.
    fn bytes(&mut self) -> Result<&mut [u8], StageError>;
}

/// A device that takes a checkpoint.
///
/// Called by one thread, in this order: `allocate` once; `submit` for each full slab, as the slabs come; `finish` once;
/// `digest` for each file.
pub trait DeviceSink {
    /// What bytes pass through.
    type Slab: Slab;

    /// The name of the device.
    fn device(&self) -> String;

    /// Allocates `total` bytes on the device, zero, and `slabs` slabs; never called twice.
    ///
    /// # Errors
    /// [`StageError`] if there is not so much memory.
    fn allocate(&mut self, total: u64, slabs: usize) -> Result<Vec<Self::Slab>, StageError>;

    /// Bytes of device memory and slabs that are locked in memory.
    fn locked_bytes(&self) -> u64;

    /// Copies the first `len` bytes of a slab to `offset` on the device, or starts to. Returns a slab whose bytes have
    /// been copied, this one or an earlier one.
    ///
    /// # Errors
    /// What the device says.
    fn submit(&mut self, slab: Self::Slab, len: usize, offset: u64) -> Result<Option<Self::Slab>, StageError>;

    /// Waits until everything has been copied.
    ///
    /// # Errors
    /// What the device says.
    fn finish(&mut self) -> Result<Vec<Self::Slab>, StageError>;

    /// BLAKE3 of what lies at `offset` on the device.
    ///
    /// # Errors
    /// What the device says.
    fn digest(&mut self, offset: u64, len: u64, threads: usize) -> Result<FileDigest, StageError>;
}

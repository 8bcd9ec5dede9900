//! A CUDA device. The driver's library is loaded when a device is opened, so that programs with this inside are built and
//! run where there is none.
#![expect(unsafe_code, reason = "the driver's pinned memory comes unset")]

use std::collections::VecDeque;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DriverError, PinnedHostSlice, sys};
use forebay_cas::numbers::{index, length};
use forebay_format::FileDigest;

use super::{DeviceSink, SLAB_BYTES, Slab, StageError};

/// The memory of one CUDA device that a checkpoint is staged into: one allocation, filled through one stream.
pub struct CudaSink {
    ordinal: usize,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    arena: Option<CudaSlice<u8>>,
    /// Slabs that are being copied, oldest first, each with the event behind its copy.
    in_flight: VecDeque<(CudaSlab, CudaEvent)>,
    /// Copies on their way at once: half of the slabs, while the others are being filled.
    in_flight_max: usize,
    /// A slab for reading back.
    spare: Option<CudaSlab>,
    locked: u64,
}

impl std::fmt::Debug for CudaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaSink").field("ordinal", &self.ordinal).field("locked", &self.locked).finish_non_exhaustive()
    }
}

impl CudaSink {
    /// Opens a device.
    ///
    /// # Errors
    /// [`StageError::NoDriver`] on a machine without the driver, [`StageError::Cuda`] if there is no such device.
    pub fn open(ordinal: usize) -> Result<Self, StageError> {
        // Asked first, because every other call panics without the library.
        // SAFETY: it only tries to load the driver's library, which runs nothing but that library's own set-up.
        if !unsafe { sys::is_culib_present() } {
            return Err(StageError::NoDriver { ordinal });
        }
        let opened = |source| failed(ordinal, "it was opened", source);
        let context = CudaContext::new(ordinal).map_err(opened)?;
        let stream = context.new_stream().map_err(opened)?;
        Ok(Self {
            ordinal,
            context,
            stream,
            arena: None,
            in_flight: VecDeque::new(),
            in_flight_max: 1,
            spare: None,
            locked: 0,
        })
    }

    fn slab(&mut self) -> Result<CudaSlab, StageError> {
        let ordinal = self.ordinal;
        let pinned = |source| failed(ordinal, "memory was pinned", source);
        // Without flags: write-combined memory would be read, to be hashed, some seventy times slower.
        // SAFETY: the memory is unset, and is set to zero below before anybody reads it.
        let mut memory = unsafe { self.context.alloc_pinned_with_flags::<u8>(SLAB_BYTES, 0) }.map_err(pinned)?;
        let start = memory.as_mut_ptr().map_err(pinned)?;
        // SAFETY: `start` points to the SLAB_BYTES bytes that were allocated above and are nobody else's.
        unsafe { start.write_bytes(0, SLAB_BYTES) };
        self.locked += length(SLAB_BYTES);
        Ok(CudaSlab { ordinal, memory })
    }

    fn arena(&mut self) -> &mut CudaSlice<u8> {
        self.arena.as_mut().expect("memory was allocated before anything was submitted")
    }

    /// Waits for the oldest copy.
    fn oldest(&mut self) -> Result<Option<CudaSlab>, StageError> {
        let Some((slab, event)) = self.in_flight.pop_front() else { return Ok(None) };
        event.synchronize().map_err(|source| failed(self.ordinal, "bytes were copied to it", source))?;
        Ok(Some(slab))
    }
}

impl Drop for CudaSink {
    fn drop(&mut self) {
        // No slab may be freed while the device still reads it.
        let _ended_either_way = self.stream.synchronize();
    }
}

/// A slab of pinned memory.
#[derive(Debug)]
pub struct CudaSlab {
    ordinal: usize,
    memory: PinnedHostSlice<u8>,
}

impl Slab for CudaSlab {
    fn bytes(&mut self) -> Result<&mut [u8], StageError> {
        self.memory.as_mut_slice().map_err(|source| failed(self.ordinal, "pinned memory was waited for", source))
    }
}

impl DeviceSink for CudaSink {
    type Slab = CudaSlab;

    fn device(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }

    fn allocate(&mut self, total: u64, slabs: usize) -> Result<Vec<CudaSlab>, StageError> {
        let allocated = |source| failed(self.ordinal, "memory was allocated on it", source);
        let (free, _) = self.context.mem_get_info().map_err(allocated)?;
        if total > length(free) {
            return Err(StageError::Memory { device: self.device(), needed: total, available: length(free) });
        }
        let arena = self.stream.alloc_zeros(index(total.max(1))).map_err(allocated)?;
        self.arena = Some(arena);
        self.spare = Some(self.slab()?);
        self.in_flight_max = (slabs / 2).max(1);
        (0..slabs).map(|_| self.slab()).collect()
    }

    fn locked_bytes(&self) -> u64 {
        self.locked
    }

    fn submit(&mut self, mut slab: CudaSlab, len: usize, offset: u64) -> Result<Option<CudaSlab>, StageError> {
        let copied = |source| failed(slab.ordinal, "bytes were copied to it", source);
        let stream = Arc::clone(&self.stream);
        let at = index(offset);
        let bytes = slab.memory.as_mut_slice().map_err(copied)?;
        // Returns before the copy is done, for the memory is pinned: the slab is kept until its event has come.
        stream.memcpy_htod(&bytes[..len], &mut self.arena().slice_mut(at..at + len)).map_err(copied)?;
        let event = stream.record_event(None).map_err(copied)?;
        self.in_flight.push_back((slab, event));
        if self.in_flight.len() > self.in_flight_max { self.oldest() } else { Ok(None) }
    }

    fn finish(&mut self) -> Result<Vec<CudaSlab>, StageError> {
        let mut slabs = Vec::new();
        while let Some(slab) = self.oldest()? {
            slabs.push(slab);
        }
        Ok(slabs)
    }

    fn digest(&mut self, offset: u64, len: u64, _: usize) -> Result<FileDigest, StageError> {
        let ordinal = self.ordinal;
        let read = |source| failed(ordinal, "bytes were read back from it", source);
        let stream = Arc::clone(&self.stream);
        let mut slab = self.spare.take().expect("allocated with the other slabs");
        let mut hasher = blake3::Hasher::new();
        let end = index(offset + len);
        for at in (index(offset)..end).step_by(SLAB_BYTES) {
            let part = SLAB_BYTES.min(end - at);
            let bytes = slab.memory.as_mut_slice().map_err(read)?;
            let view = self.arena().slice(at..at + part);
            stream.memcpy_dtoh(&view, &mut bytes[..part]).map_err(read)?;
            stream.synchronize().map_err(read)?;
            hasher.update(&bytes[..part]);
        }
        self.spare = Some(slab);
        Ok(hasher.finalize().into())
    }
}

const fn failed(ordinal: usize, doing: &'static str, source: DriverError) -> StageError {
    StageError::Cuda { ordinal, doing, source }
}

//! The memory of this machine as a device: anonymous pages, locked where the system allows it.

use std::fs;

use forebay_cas::numbers::{index, length};
use forebay_format::FileDigest;
use memmap2::{Advice, MmapMut};

use super::{DeviceSink, SLAB_BYTES, Slab, StageError, digest};

/// Host memory that a checkpoint is staged into.
#[derive(Debug, Default)]
pub struct HostSink {
    target: Option<MmapMut>,
    locked: u64,
}

impl HostSink {
    /// A sink without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What has been staged.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.target.as_deref().unwrap_or_default()
    }

    /// Maps zeroed memory and locks it if the system lets it.
    fn map(&mut self, len: usize) -> Result<MmapMut, StageError> {
        let map = MmapMut::map_anon(len.max(1)).map_err(|source| StageError::Map { len: length(len), source })?;
        // Larger pages make the first touch of each faster; without them everything works the same.
        let _smaller_pages = map.advise(Advice::HugePage);
        if map.lock().is_ok() {
            self.locked += length(len);
        }
        Ok(map)
    }
}

/// A slab of host memory.
#[derive(Debug)]
pub struct HostSlab(MmapMut);

impl Slab for HostSlab {
    fn bytes(&mut self) -> Result<&mut [u8], StageError> {
        Ok(&mut self.0)
    }
}

impl DeviceSink for HostSink {
    type Slab = HostSlab;

    fn device(&self) -> String {
        "host".to_owned()
    }

    fn allocate(&mut self, total: u64, slabs: usize) -> Result<Vec<HostSlab>, StageError> {
        let needed = total.saturating_add(length(slabs * SLAB_BYTES));
        // Pages that are not there would be found missing only when they are touched, by a kill.
        if let Some(available) = available_bytes()
            && needed > available
        {
            return Err(StageError::Memory { device: self.device(), needed, available });
        }
        self.target = Some(self.map(index(total))?);
        (0..slabs).map(|_| self.map(SLAB_BYTES).map(HostSlab)).collect()
    }

    fn locked_bytes(&self) -> u64 {
        self.locked
    }

    fn submit(&mut self, slab: HostSlab, len: usize, offset: u64) -> Result<Option<HostSlab>, StageError> {
        let target = self.target.as_mut().expect("memory was allocated before anything was submitted");
        let at = index(offset);
        target[at..at + len].copy_from_slice(&slab.0[..len]);
        Ok(Some(slab))
    }

    fn finish(&mut self) -> Result<Vec<HostSlab>, StageError> {
        Ok(Vec::new())
    }

    fn digest(&mut self, offset: u64, len: u64, threads: usize) -> Result<FileDigest, StageError> {
        Ok(digest::hash(&self.bytes()[index(offset)..index(offset + len)], threads).into())
    }
}

/// Memory that can be had without swapping, as the kernel estimates it; `None` where it does not say.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

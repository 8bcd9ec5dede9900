//! The threads between repository and device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_cas::clock::Clock;
use forebay_cas::numbers::{index, length};
use forebay_cas::pieces::PieceReader;
use forebay_cas::sync::{Mutex, Receiver, Sender, bounded};
use forebay_cas::{Cancel, ChunkReader, Notices, Progress, Warning, task};
use forebay_format::Directory;

use super::window::{Space, Window, Windows};
use super::{DeviceSink, SLAB_BYTES, SLABS_MAX, Slab, StageError};

/// How to stage.
#[derive(Debug, Clone, Copy)]
pub struct StageOptions<'o> {
    /// Threads that read, decode and verify.
    pub threads: usize,
    /// Copy as many bytes in a plain loop first, to compare with.
    pub bench: bool,
    /// Measures the stages.
    pub clock: &'o dyn Clock,
    /// Hears of memory that is not locked.
    pub notices: &'o dyn Notices,
}

/// A checkpoint that is on a device, verified.
#[derive(Debug, Clone, PartialEq)]
pub struct StageReport {
    /// The device.
    pub device: String,
    /// Files staged.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of all slabs.
    pub slab_bytes: u64,
    /// Bytes of slabs and device memory that are locked.
    pub locked: u64,
    /// Time to have memory, locked and zero.
    pub allocate: Duration,
    /// Time threads read, decoded and verified, the sum over threads divided by their number.
    pub read: Duration,
    /// Time spent in copies to the device.
    pub copy: Duration,
    /// From the first read to the last byte copied.
    pub pipeline: Duration,
    /// Time to hash what landed.
    pub verify: Duration,
    /// Time of the plain loop.
    pub plain: Option<Duration>,
}

/// Brings all files of a version onto a device and proves that they are there.
///
/// # Errors
/// [`StageError`]; what is on the device then is not to be used.
pub fn stage<S: DeviceSink>(
    sink: &mut S,
    reader: &ChunkReader,
    root: &Directory,
    options: &StageOptions<'_>,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<StageReport, StageError> {
    let clock = options.clock;
    let space = Space::of(reader, root)?;
    let bytes = space.files.iter().map(|file| file.entry.size).sum();
    Progress::add(&progress.files_total, length(space.files.len()));
    Progress::add(&progress.bytes_total, bytes);
    let started = clock.elapsed();
    let count = index(space.len.div_ceil(length(SLAB_BYTES))).clamp(2, SLABS_MAX);
    let slabs = sink.allocate(space.len, count)?;
    let slab_bytes = length(count * SLAB_BYTES);
    let allocate = clock.elapsed() - started;
    warn_unlocked(sink, space.len + slab_bytes, options.notices);
    let (slabs, plain) = if options.bench { plain_loop(sink, slabs, space.len, clock)? } else { (slabs, None) };
    let started = clock.elapsed();
    let busy = run(sink, slabs, reader, &space, options, progress, cancel)?;
    let pipeline = clock.elapsed() - started;
    let started = clock.elapsed();
    verify(sink, &space, options.threads, progress, cancel)?;
    Ok(StageReport {
        device: sink.device(),
        files: length(space.files.len()),
        bytes,
        slab_bytes,
        locked: sink.locked_bytes(),
        allocate,
        read: busy.read,
        copy: busy.copy,
        pipeline,
        verify: clock.elapsed() - started,
        plain,
    })
}

fn warn_unlocked<S: DeviceSink>(sink: &S, wanted: u64, notices: &dyn Notices) {
    let locked = sink.locked_bytes();
    // The device's own memory is not the host's to lock.
    if sink.device() == "host" && locked < wanted {
        let message = format!(
            "{} of {wanted} bytes cannot be locked in memory and may be swapped out; raise the limit (ulimit -l)",
            wanted - locked
        );
        notices.warn(Warning { kind: "memory-not-locked", message, path: None });
    }
}

/// Copies zeros over the whole device memory, which is zero, as fast as that goes. Gives the slabs back.
fn plain_loop<S: DeviceSink>(
    sink: &mut S,
    slabs: Vec<S::Slab>,
    len: u64,
    clock: &dyn Clock,
) -> Result<(Vec<S::Slab>, Option<Duration>), StageError> {
    let started = clock.elapsed();
    let count = slabs.len();
    let mut slabs = std::collections::VecDeque::from(slabs);
    let mut offset = 0;
    while offset < len {
        let part = length(SLAB_BYTES).min(len - offset);
        if let Some(slab) = slabs.pop_front() {
            slabs.extend(sink.submit(slab, index(part), offset)?);
            offset += part;
        } else {
            slabs.extend(sink.finish()?);
        }
    }
    slabs.extend(sink.finish()?);
    debug_assert_eq!(slabs.len(), count, "every slab comes back");
    Ok((slabs.into(), Some(clock.elapsed() - started)))
}

/// A slab with a window's bytes in it, or why there is none.
type Filled<S> = Result<(S, Window), StageError>;

#[derive(Debug, Default)]
struct Busy {
    read: Duration,
    copy: Duration,
}

/// Fills slabs with several threads and hands them to the device.
fn run<S: DeviceSink>(
    sink: &mut S,
    slabs: Vec<S::Slab>,
    reader: &ChunkReader,
    space: &Space,
    options: &StageOptions<'_>,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Busy, StageError> {
    // Never more slabs than there are, so no send ever waits.
    let (free, empty) = bounded(slabs.len());
    let (full, filled) = bounded(slabs.len());
    slabs.into_iter().for_each(|slab| free.send(slab).expect("there is room for every slab"));
    let windows = Mutex::new(Windows::new(reader, &space.files));
    let nanos = AtomicU64::new(0);
    let threads = options.threads.max(1);
    let work = |empty: Receiver<S::Slab>, full: Sender<Filled<S::Slab>>| {
        let mut filler = Filler { pieces: PieceReader::new(reader), space, windows: &windows, clock: options.clock };
        while let Some(filled) = filler.next(&empty, &nanos, cancel).transpose() {
            let ends = filled.is_err();
            // A device that failed takes nothing any more.
            if full.send(filled).is_err() || ends {
                return;
            }
        }
    };
    let copy = std::thread::scope(|scope| {
        for _ in 0..threads {
            let (empty, full) = (empty.clone(), full.clone());
            task::spawn_scoped(scope, "stage", move || work(empty, full));
        }
        // The channels end when the last thread does.
        drop((empty, full));
        deliver(sink, free, filled, options.clock, progress)
    })?;
    Ok(Busy { read: Duration::from_nanos(nanos.load(Ordering::Relaxed)) / u32::try_from(threads).unwrap_or(1), copy })
}

/// What one thread needs to fill slabs.
struct Filler<'f> {
    pieces: PieceReader<'f>,
    space: &'f Space,
    windows: &'f Mutex<Windows<'f>>,
    clock: &'f dyn Clock,
}

impl Filler<'_> {
    /// Fills the next slab; `None` when there is nothing left, or nobody who takes it.
    fn next<L: Slab>(
        &mut self,
        empty: &Receiver<L>,
        nanos: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<Option<(L, Window)>, StageError> {
        if cancel.is_cancelled() {
            return Err(StageError::Interrupted);
        }
        // The window first: nobody waits for a slab without anything to put into it.
        let Some(window) = self.windows.lock().next()? else { return Ok(None) };
        let Ok(mut slab) = empty.recv() else { return Ok(None) };
        let started = self.clock.elapsed();
        window.fill(&self.space.files, &mut self.pieces, slab.bytes()?)?;
        let spent = self.clock.elapsed() - started;
        Progress::add(nanos, u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX));
        Ok(Some((slab, window)))
    }
}

/// Hands full slabs to the device as they come, and empty ones back. Returns the time spent in copies. However it ends,
/// both channels end with it, so that no thread waits on.
fn deliver<S: DeviceSink>(
    sink: &mut S,
    free: Sender<S::Slab>,
    filled: Receiver<Filled<S::Slab>>,
    clock: &dyn Clock,
    progress: &Progress,
) -> Result<Duration, StageError> {
    let mut copy = Duration::ZERO;
    for filled in filled {
        let (slab, window) = filled?;
        let started = clock.elapsed();
        let done = sink.submit(slab, window.len, window.offset)?;
        copy += clock.elapsed() - started;
        Progress::add(&progress.bytes, length(window.len));
        if let Some(slab) = done {
            // Nobody waits for slabs any more when the last window is filled.
            let _last = free.send(slab);
        }
    }
    let started = clock.elapsed();
    sink.finish()?;
    Ok(copy + (clock.elapsed() - started))
}

/// Hashes what landed and compares it with the manifest.
fn verify<S: DeviceSink>(
    sink: &mut S,
    space: &Space,
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<(), StageError> {
    for file in &space.files {
        if cancel.is_cancelled() {
            return Err(StageError::Interrupted);
        }
        if sink.digest(file.offset, file.entry.size, threads)? != file.entry.digest {
            return Err(StageError::Landed { path: file.path.clone(), device: sink.device() });
        }
        Progress::add(&progress.files, 1);
    }
    Ok(())
}

//! A store whose answers get lost.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_cas::rng::{Random, Seed};
use forebay_cas::sync::Mutex;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Memory behind a bad line: of the requests some are never heard, some arrive after the next one was sent, and of some
/// the answer is never heard.
#[derive(Debug)]
pub(crate) struct Lossy {
    memory: InMemory,
    random: Random,
    /// Requests and answers that were lost.
    lost: AtomicU64,
    good: AtomicBool,
    /// A write on its way.
    late: Mutex<Option<(Path, PutPayload, PutOptions)>>,
}

impl Lossy {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            memory: InMemory::new(),
            random: Seed::fixed(seed).stream("line"),
            lost: AtomicU64::new(0),
            good: AtomicBool::new(false),
            late: Mutex::new(None),
        }
    }

    /// From here on nothing is lost or late any more; says how much was lost.
    pub(crate) async fn heal(&self) -> u64 {
        self.deliver().await;
        self.good.store(true, Ordering::Relaxed);
        self.lost.load(Ordering::Relaxed)
    }

    /// What was on its way arrives.
    async fn deliver(&self) {
        let late = self.late.lock().take();
        if let Some((location, payload, options)) = late {
            let _nobody_hears = self.memory.put_opts(&location, payload, options).await;
        }
    }

    fn is_lost(&self) -> Result<()> {
        if self.good.load(Ordering::Relaxed) || self.random.below(4) > 0 {
            return Ok(());
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        Err(Error::Generic { store: "Lossy", source: "the line is bad".into() })
    }
}

impl fmt::Display for Lossy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lossy")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Lossy {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.deliver().await;
        self.is_lost()?;
        if let Err(lost) = self.is_lost() {
            *self.late.lock() = Some((location.clone(), payload, options));
            return Err(lost);
        }
        let result = self.memory.put_opts(location, payload, options).await;
        self.is_lost()?;
        result
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.memory.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.is_lost()?;
        self.memory.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.memory.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.memory.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.memory.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.memory.copy_opts(from, to, options).await
    }
}

//! A store that takes its time, and is gone after some requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_cas::rng::Random;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Longest time of a request, in steps of 100 µs.
const STEPS: u64 = 12;

/// One actor's line to the memory that all share.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    memory: Arc<InMemory>,
    line: Arc<Line>,
}

#[derive(Debug)]
struct Line {
    random: Random,
    requests: AtomicU64,
    /// Of the request with this number the answer is lost, and nothing is heard of later ones.
    crash: Option<u64>,
    steps: u64,
}

impl Slow {
    pub(crate) fn new(memory: Arc<InMemory>, random: Random, crash: Option<u64>) -> Self {
        Self { memory, line: Arc::new(Line { random, requests: AtomicU64::new(0), crash, steps: STEPS }) }
    }

    /// As it is, without waits.
    pub(crate) fn quick(self) -> Self {
        let line = Arc::into_inner(self.line).expect("nobody else has it yet");
        Self { line: Arc::new(Line { steps: 1, ..line }), ..self }
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.line.crash.is_some_and(|crash| self.line.requests.load(Ordering::SeqCst) > crash)
    }

    /// Waits before a request. Whether its answer will be heard.
    async fn request(&self) -> Result<bool> {
        let steps = self.line.random.below(self.line.steps);
        if steps > 0 {
            tokio::time::sleep(Duration::from_micros(100 * steps)).await;
        }
        let number = self.line.requests.fetch_add(1, Ordering::SeqCst);
        match self.line.crash {
            Some(crash) if number > crash => Err(gone()),
            crash => Ok(crash != Some(number)),
        }
    }
}

fn gone() -> Error {
    Error::PermissionDenied { path: String::new(), source: "this actor has crashed".into() }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_heard = self.request().await?;
        let result = self.memory.put_opts(location, payload, options).await;
        if is_heard { result } else { Err(gone()) }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.request().await?;
        self.memory.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_heard = self.request().await?;
        let result = self.memory.get_opts(location, options).await;
        if is_heard { result } else { Err(gone()) }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (store, memory) = (self.clone(), Arc::clone(&self.memory));
        futures_util::stream::once(async move {
            match store.request().await {
                Ok(_) => memory.delete_stream(locations),
                Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
            }
        })
        .flatten()
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, memory, prefix) = (self.clone(), Arc::clone(&self.memory), prefix.cloned());
        futures_util::stream::once(async move {
            match store.request().await {
                Ok(_) => memory.list(prefix.as_ref()),
                Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
            }
        })
        .flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request().await?;
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.request().await?;
        self.memory.copy_opts(from, to, options).await
    }
}

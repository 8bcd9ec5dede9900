//! Access to where a repository lives: an object store or a plain folder.

mod error;
mod probe;
mod sweep;
mod url;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_format::Timestamp;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

pub use self::error::OriginError;
pub use self::probe::{ProbeError, probe};
pub(crate) use self::sweep::sweep;
use crate::numbers::length;

/// A longer write may take longer than any answer may be silent: at 0.2 MiB/s it is about 5 s.
const LONG_WRITE_BYTES: u64 = 1 << 20;

/// How a conditional create ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is ours and durable.
    New,
    /// Some object has this name; on a remote store it may be our own earlier try.
    Exists,
    /// A remote store did not say; the object may or may not be there.
    Unknown,
}

/// A store under one prefix. Cheap to share; every request has a deadline (see `url`).
///
/// On a folder every write is synced (file, then directories) before it is acknowledged. A write there that fails for
/// any other reason than an existing name poisons the origin: the page cache may have dropped what it could not write,
/// so nothing further is written or acknowledged by this process.
pub struct Origin {
    store: Arc<dyn ObjectStore>,
    /// The same with patience for writes that take long.
    long_writes: Arc<dyn ObjectStore>,
    /// For messages; no credentials.
    url: String,
    folder: Option<PathBuf>,
    poisoned: AtomicBool,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    requests: AtomicU64,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Origin {
    /// Opens `file:///path`, a plain path, `memory://`, `s3://`, `gs://`, `az://` or `https://` of a known store. Settings
    /// such as credentials come from `settings` (name and value as in the environment). Nothing is read or written yet.
    ///
    /// # Errors
    /// [`OriginError::Url`] if the URL or a setting is wrong.
    pub fn open(text: &str, settings: &[(String, String)]) -> Result<Self, OriginError> {
        url::open(text, settings)
    }

    /// An origin on a store that the caller made.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, url: String, folder: Option<PathBuf>) -> Self {
        Self {
            long_writes: Arc::clone(&store),
            store,
            url,
            folder,
            poisoned: AtomicBool::new(false),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }
    }

    /// Uses another client of the same store for long writes.
    fn with_long_writes(self, store: Arc<dyn ObjectStore>) -> Self {
        Self { long_writes: store, ..self }
    }

    /// The URL, for messages.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder, if the origin is one.
    #[must_use]
    pub const fn folder(&self) -> Option<&PathBuf> {
        self.folder.as_ref()
    }

    /// Body bytes read so far.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Body bytes written so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Requests made so far, retries inside the store's client not counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Reads a whole object of at most `limit` bytes.
    ///
    /// # Errors
    /// [`OriginError::TooLarge`] before anything of a larger object is read; [`OriginError::NotFound`] only if the
    /// store says so.
    pub async fn get(&self, path: &str, limit: u64) -> Result<Bytes, OriginError> {
        self.count_request();
        let result = self.store.get(&Path::from(path)).await.map_err(|source| self.error(path, source))?;
        let size = result.meta.size;
        if size > limit {
            return Err(OriginError::TooLarge { origin: self.url.clone(), path: path.to_owned(), size, limit });
        }
        let bytes = result.bytes().await.map_err(|source| self.error(path, source))?;
        self.read_bytes.fetch_add(length(bytes.len()), Ordering::Relaxed);
        Ok(bytes)
    }

    /// Reads exactly the bytes of a range.
    ///
    /// # Errors
    /// [`OriginError::Short`] if the object ends before the range does.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, OriginError> {
        self.count_request();
        let wanted = range.end - range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let result =
            self.store.get_opts(&Path::from(path), options).await.map_err(|source| self.error(path, source))?;
        let bytes = result.bytes().await.map_err(|source| self.error(path, source))?;
        self.read_bytes.fetch_add(length(bytes.len()), Ordering::Relaxed);
        if length(bytes.len()) == wanted {
            Ok(bytes)
        } else {
            let found = length(bytes.len());
            Err(OriginError::Short { origin: self.url.clone(), path: path.to_owned(), wanted, found })
        }
    }

    /// Length of an object in bytes; `None` if the store says there is none.
    ///
    /// # Errors
    /// [`OriginError`] if the store could not be asked.
    pub async fn len(&self, path: &str) -> Result<Option<u64>, OriginError> {
        self.count_request();
        match self.store.head(&Path::from(path)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.error(path, source)),
        }
    }

    /// Writes an object under a name that nobody else uses (a random one), durably.
    ///
    /// # Errors
    /// [`OriginError`] if it is not known to be durable.
    pub async fn put(&self, path: &str, payload: PutPayload) -> Result<(), OriginError> {
        self.check_poison()?;
        self.count_request();
        let len = length(payload.content_length());
        let store = if len > LONG_WRITE_BYTES { &self.long_writes } else { &self.store };
        match store.put(&Path::from(path), payload).await {
            Ok(_) => {
                self.written_bytes.fetch_add(len, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(self.write_failed(path, source)),
        }
    }

    /// Creates an object if there is none of this name, durably and atomically.
    ///
    /// # Errors
    /// On a folder every failure but an existing name; on a remote store only failures that prove that nothing was
    /// written. Where it may have been written the answer is [`Created::Unknown`].
    pub async fn create(&self, path: &str, bytes: Bytes) -> Result<Created, OriginError> {
        self.check_poison()?;
        self.count_request();
        let len = length(bytes.len());
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&Path::from(path), bytes.into(), options).await {
            Ok(_) => {
                self.written_bytes.fetch_add(len, Ordering::Relaxed);
                Ok(Created::New)
            }
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::Exists)
            }
            Err(source) if self.folder.is_none() && error::is_in_doubt(&source) => {
                tracing::debug!(path, %source, "a create whose outcome is unknown");
                Ok(Created::Unknown)
            }
            Err(source) => Err(self.write_failed(path, source)),
        }
    }

    /// Names and lengths of all objects below a prefix, in no particular order.
    ///
    /// # Errors
    /// [`OriginError`] if the listing may be incomplete.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, OriginError> {
        self.count_request();
        self.store
            .list(Some(&Path::from(prefix)))
            .map_ok(|meta| (meta.location.to_string(), meta.size))
            .try_collect()
            .await
            .map_err(|source| self.error(prefix, source))
    }

    /// As [`Self::list`], with the time at which the store says that each was written.
    ///
    /// # Errors
    /// [`OriginError`] if the listing may be incomplete.
    pub async fn list_aged(&self, prefix: &str) -> Result<Vec<(String, u64, Timestamp)>, OriginError> {
        self.count_request();
        let time = |meta: &ObjectMeta| Timestamp {
            seconds: meta.last_modified.timestamp(),
            nanos: meta.last_modified.timestamp_subsec_nanos().min(999_999_999),
        };
        self.store
            .list(Some(&Path::from(prefix)))
            .map_ok(|meta| (meta.location.to_string(), meta.size, time(&meta)))
            .try_collect()
            .await
            .map_err(|source| self.error(prefix, source))
    }

    /// Names of the objects of a folder that come after `after` in byte order; names and not more are asked for.
    ///
    /// # Errors
    /// [`OriginError`] if the listing may be incomplete.
    pub async fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<String>, OriginError> {
        self.count_request();
        self.store
            .list_with_offset(Some(&Path::from(prefix)), &Path::from(after))
            .map_ok(|meta| meta.location.to_string())
            .try_collect()
            .await
            .map_err(|source| self.error(prefix, source))
    }

    /// Names of the folders right below a prefix, in no particular order, without listing what is in them.
    ///
    /// # Errors
    /// [`OriginError`] if the listing may be incomplete.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, OriginError> {
        self.count_request();
        let listed = self.store.list_with_delimiter(Some(&Path::from(prefix))).await;
        let listed = listed.map_err(|source| self.error(prefix, source))?;
        Ok(listed.common_prefixes.iter().filter_map(|path| Some(path.filename()?.to_owned())).collect())
    }

    /// Deletes an object; one that is not there is fine.
    ///
    /// # Errors
    /// [`OriginError`] if it may still be there.
    pub async fn delete(&self, path: &str) -> Result<(), OriginError> {
        self.check_poison()?;
        self.count_request();
        match self.store.delete(&Path::from(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.error(path, source)),
        }
    }

    fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn error(&self, path: &str, source: object_store::Error) -> OriginError {
        OriginError::from_store(&self.url, path, source)
    }

    fn check_poison(&self) -> Result<(), OriginError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(OriginError::Poisoned { origin: self.url.clone() });
        }
        Ok(())
    }

    fn write_failed(&self, path: &str, source: object_store::Error) -> OriginError {
        if self.folder.is_some() {
            self.poisoned.store(true, Ordering::Release);
        }
        self.error(path, source)
    }
}

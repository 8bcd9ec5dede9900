//! An S3 origin inside the test: one bucket in memory, and faults by rule.
//!
//! It speaks what an object store client needs: ranges, conditional creates, lists in pages, multipart uploads,
//! bulk deletes. Signatures are not looked at. Its log is the truth for every check of bytes.

mod body;
mod bucket;
mod http;
mod rules;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use self::body::Pace;
use self::bucket::Bucket;
use self::rules::Rules;
pub use self::rules::{Action, Rule};

/// The name of the only bucket.
const BUCKET: &str = "bucket";

/// One request as the server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// GET, PUT, HEAD, DELETE, POST.
    pub method: String,
    /// Key in the bucket; empty for a list.
    pub key: String,
    /// The query string, still encoded.
    pub query: String,
    /// The `Range` header.
    pub range: Option<String>,
    /// Whether it asked for `If-None-Match: *`.
    pub create_only: bool,
    /// The status answered, 0 while none was.
    pub status: u16,
    /// Bytes of the body: sent for GET, received for PUT. Grows while the transfer runs.
    pub body_bytes: u64,
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// What all requests share.
#[derive(Debug, Default)]
struct Shared {
    bucket: Mutex<Bucket>,
    rules: Mutex<Rules>,
    log: Mutex<Vec<LoggedRequest>>,
    download: Pace,
    upload: Pace,
}

impl S3Server {
    /// Starts a server with an empty bucket on a free port of the loopback interface.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let shared = Arc::new(Shared::default());
        let router = http::router(Arc::clone(&shared));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0)))
            .expect("the loopback interface has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, shared, runtime: Some(runtime) }
    }

    /// The address of a repository under `prefix`.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// The variables with which a client finds the server.
    pub fn env(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let endpoint = format!("http://{}", self.address);
        [
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }

    /// Adds a rule; of several that fit a request, each does its part.
    pub fn rule(&self, rule: Rule) {
        self.shared.rules.lock().add(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.rules.lock().clear();
    }

    /// Sends at most so many bytes a second, over all connections together; `None` lifts the limit.
    pub fn set_download_rate(&self, bytes_per_s: Option<u64>) {
        self.shared.download.set(bytes_per_s);
    }

    /// Takes at most so many bytes a second, over all connections together.
    pub fn set_upload_rate(&self, bytes_per_s: Option<u64>) {
        self.shared.upload.set(bytes_per_s);
    }

    /// Lists at most so many keys a page.
    pub fn set_page_size(&self, keys: usize) {
        self.shared.bucket.lock().page_size = keys;
    }

    /// Every request since the start or the last [`Self::clear_log`].
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.shared.log.lock().clone()
    }

    /// Forgets the log. Transfers that still run are no longer counted.
    pub fn clear_log(&self) {
        self.shared.log.lock().clear();
    }

    /// Body bytes sent so far under keys that contain `part`.
    pub fn sent_bytes(&self, part: &str) -> u64 {
        let log = self.shared.log.lock();
        log.iter().filter(|entry| entry.method == "GET" && entry.key.contains(part)).map(|e| e.body_bytes).sum()
    }

    /// Body bytes received so far under keys that contain `part`.
    pub fn received_bytes(&self, part: &str) -> u64 {
        let log = self.shared.log.lock();
        log.iter().filter(|entry| entry.method == "PUT" && entry.key.contains(part)).map(|e| e.body_bytes).sum()
    }

    /// Key → length of everything in the bucket.
    pub fn objects(&self) -> BTreeMap<String, usize> {
        self.shared.bucket.lock().objects.iter().map(|(key, object)| (key.clone(), object.data.len())).collect()
    }

    /// The content of one object.
    pub fn object(&self, key: &str) -> Option<Bytes> {
        self.shared.bucket.lock().objects.get(key).map(|object| object.data.clone())
    }

    /// Puts an object behind the client's back.
    pub fn put_object(&self, key: &str, data: impl Into<Bytes>) {
        self.shared.bucket.lock().put(key, data.into());
    }

    /// Removes an object behind the client's back.
    pub fn remove_object(&self, key: &str) {
        self.shared.bucket.lock().objects.remove(key);
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
    }
}

impl Shared {
    /// Opens a line in the log and gives its place.
    fn log_request(&self, entry: LoggedRequest) -> usize {
        let mut log = self.log.lock();
        log.push(entry);
        log.len() - 1
    }

    fn log_bytes(&self, place: usize, bytes: usize) {
        if let Some(entry) = self.log.lock().get_mut(place) {
            entry.body_bytes += bytes as u64;
        }
    }

    fn log_status(&self, place: usize, status: u16) {
        if let Some(entry) = self.log.lock().get_mut(place) {
            entry.status = status;
        }
    }
}

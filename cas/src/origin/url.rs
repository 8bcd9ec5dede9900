//! From a URL to an origin.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::ClientOptions;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use super::{Origin, OriginError};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence before and in the middle of an answer. A site that is slow but steady is not cut off. Less than the
/// 10 s after which a node that waits for this answer is given up by who asked it: there is time for another try.
const READ_TIMEOUT: Duration = Duration::from_secs(7);
/// Longest time for one whole request: a 64 MiB pack at 0.2 MiB/s. Nothing is heard while a pack is being sent, so that no
/// shorter silence says anything about it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(320);
/// How long failed requests are tried again, in all; users hear of an origin that stays away within 45 s.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn open(text: &str, settings: &[(String, String)]) -> Result<Origin, OriginError> {
    let refuse = |reason: &str| OriginError::Url { url: text.to_owned(), reason: reason.to_owned() };
    if text.is_empty() {
        return Err(refuse("it is empty; write a folder, file:///path, s3://bucket/prefix, gs://… or az://…"));
    }
    if !text.contains("://") {
        if text.starts_with('~') {
            return Err(refuse("~ is only known to shells; write the whole path"));
        }
        return folder(text, FsPath::new(text));
    }
    let url = Url::parse(text).map_err(|source| refuse(&source.to_string()))?;
    let (bucket, prefix) = (url.host_str().unwrap_or_default(), url.path().trim_matches('/'));
    match url.scheme() {
        "file" => {
            let path = url.to_file_path().map_err(|()| refuse("write file:///absolute/path"))?;
            folder(text, &path)
        }
        "memory" => Ok(Origin::new(Arc::new(InMemory::new()), text.to_owned(), None)),
        "s3" | "gs" | "az" if bucket.is_empty() => Err(refuse("the bucket is missing")),
        "s3" => remote(text, prefix, |client| s3(bucket, settings, client)),
        "gs" => remote(text, prefix, |client| gcs(bucket, settings, client)),
        "az" => remote(text, prefix, |client| azure(bucket, settings, client)),
        _ => {
            Err(refuse("write a folder, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"))
        }
    }
}

/// A folder. It is made with the first write, so that reading an unknown repository leaves nothing behind.
fn folder(text: &str, path: &FsPath) -> Result<Origin, OriginError> {
    let absolute = std::path::absolute(path)
        .map_err(|source| OriginError::Url { url: text.to_owned(), reason: source.to_string() })?;
    if absolute.exists() && !absolute.is_dir() {
        return Err(OriginError::Url { url: text.to_owned(), reason: "it is a file, not a folder".to_owned() });
    }
    let store = LocalFileSystem::new().with_fsync(true);
    let prefix = Path::from_absolute_path(&absolute)
        .map_err(|source| OriginError::Url { url: text.to_owned(), reason: source.to_string() })?;
    Ok(Origin::new(Arc::new(PrefixStore::new(store, prefix)), text.to_owned(), Some(absolute)))
}

fn remote<S: ObjectStore>(
    text: &str,
    prefix: &str,
    make: impl Fn(ClientOptions) -> Result<S, object_store::Error>,
) -> Result<Origin, OriginError> {
    let store = |client: ClientOptions| -> Result<Arc<dyn ObjectStore>, OriginError> {
        let refuse =
            |source: object_store::Error| OriginError::Url { url: text.to_owned(), reason: source.to_string() };
        let store = make(client).map_err(refuse)?;
        Ok(if prefix.is_empty() { Arc::new(store) } else { Arc::new(PrefixStore::new(store, prefix)) })
    };
    let short = store(client().with_read_timeout(READ_TIMEOUT))?;
    Ok(Origin::new(short, text.to_owned(), None::<PathBuf>).with_long_writes(store(client())?))
}

fn client() -> ClientOptions {
    // The TLS library wants its provider chosen once for the process; a second choice of the same is refused and fine.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(REQUEST_TIMEOUT)
}

fn retry() -> RetryConfig {
    RetryConfig { retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

/// Settings that start with one of these words and that the store's own builder knows, in lower case.
fn known<K: std::str::FromStr>(settings: &[(String, String)], words: &[&str]) -> Vec<(K, String)> {
    settings
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| words.iter().any(|word| name.starts_with(word)))
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.clone())))
        .collect()
}

fn s3(
    bucket: &str,
    settings: &[(String, String)],
    client: ClientOptions,
) -> Result<impl ObjectStore, object_store::Error> {
    let mut builder = AmazonS3Builder::new().with_client_options(client);
    for (key, value) in known(settings, &["aws_"]) {
        builder = builder.with_config(key, value);
    }
    builder.with_bucket_name(bucket).with_retry(retry()).build()
}

fn gcs(
    bucket: &str,
    settings: &[(String, String)],
    client: ClientOptions,
) -> Result<impl ObjectStore, object_store::Error> {
    let mut builder = GoogleCloudStorageBuilder::new().with_client_options(client);
    for (key, value) in known(settings, &["google_"]) {
        builder = builder.with_config(key, value);
    }
    builder.with_bucket_name(bucket).with_retry(retry()).build()
}

fn azure(
    container: &str,
    settings: &[(String, String)],
    client: ClientOptions,
) -> Result<impl ObjectStore, object_store::Error> {
    let mut builder = MicrosoftAzureBuilder::new().with_client_options(client);
    for (key, value) in known(settings, &["azure_"]) {
        builder = builder.with_config(key, value);
    }
    builder.with_container_name(container).with_retry(retry()).build()
}

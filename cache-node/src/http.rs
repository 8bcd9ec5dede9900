//! What a node answers over HTTP.
//!
//! | path | answer |
//! |---|---|
//! | `GET /healthz` | 200 `ok`: the process runs |
//! | `GET /readyz` | 200 `ready`, or 503 `not ready`: send no work here |
//! | `GET /metrics` | 200, counters and gauges in Prometheus' text format |
//! | `GET /v1/status` | 200, [`NodeStatus`] as JSON |
//!
//! No answer may be cached: each is about this moment.

use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use forebay_transfer::NodeId;
use serde::{Serialize, Serializer};

use crate::role::Role;
use crate::store::StoreStats;

/// Where the answers come from. Both calls are made for every request: they must not wait.
pub trait StatusSource: fmt::Debug + Send + Sync {
    /// Whether the node takes work: its store is open, and it is not draining.
    fn is_ready(&self) -> bool;

    /// Whether a key may see the status over QUIC.
    fn may_ask(&self, key: NodeId) -> bool;

    /// What the node says about itself now.
    fn status(&self) -> NodeStatus;

    /// All metrics, in Prometheus' text format.
    fn metrics(&self) -> String;
}

/// A node's answer about itself. Fields may be added to the JSON; none is renamed or taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Edge or gateway.
    pub role: Role,
    /// Version of the program.
    pub version: &'static str,
    /// Whether it is leaving, and takes no more work.
    pub draining: bool,
    /// Its public key; 64 hexadecimal digits in JSON.
    #[serde(serialize_with = "as_text")]
    pub node_id: NodeId,
    /// The site it stands at, if it was told; `null` in JSON otherwise, as for the next two.
    pub site: Option<String>,
    /// The region of the site.
    pub region: Option<String>,
    /// Who rents the site out.
    pub provider: Option<String>,
    /// Whole seconds since it started.
    pub uptime_s: u64,
    /// Open connections.
    pub connections: u64,
    /// UDP payload sent so far, in bytes.
    pub wire_sent_bytes: u64,
    /// UDP payload received so far, in bytes.
    pub wire_received_bytes: u64,
    /// The most bytes a second that it sends to all clients together, if it was told.
    pub rate_bytes_per_s: Option<u64>,
    /// What it serves; `null` at an edge.
    pub repository: Option<String>,
    /// Bodies of the origin's answers so far, in bytes; `null` at an edge.
    pub origin_read_bytes: Option<u64>,
    /// The disk cache; `null` at a gateway.
    pub cache: Option<CacheStatus>,
}

/// The disk cache of an edge. Counters are since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheStatus {
    /// Bytes of all frames, in whole blocks.
    pub used_bytes: u64,
    /// The most there may be.
    pub capacity_bytes: u64,
    /// Frames.
    pub entries: u64,
    /// Frames evicted.
    pub evictions: u64,
    /// Damaged frames thrown away.
    pub discarded: u64,
    /// Frames that could not be kept.
    pub refused: u64,
}

impl From<StoreStats> for CacheStatus {
    fn from(stats: StoreStats) -> Self {
        let StoreStats { used_bytes, capacity_bytes, entries, evictions, discarded, refused } = stats;
        Self { used_bytes, capacity_bytes, entries, evictions, discarded, refused }
    }
}

/// The routes of a node.
pub fn router(source: Arc<dyn StatusSource>) -> Router {
    Router::new()
        .route("/healthz", get("ok"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .layer(middleware::map_response(no_store))
        .with_state(source)
}

fn readyz(State(source): State<Arc<dyn StatusSource>>) -> Ready<(StatusCode, &'static str)> {
    ready(if source.is_ready() { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") })
}

fn status(State(source): State<Arc<dyn StatusSource>>) -> Ready<Json<NodeStatus>> {
    ready(Json(source.status()))
}

fn metrics(State(source): State<Arc<dyn StatusSource>>) -> Ready<String> {
    ready(source.metrics())
}

fn no_store(mut response: Response) -> Ready<Response> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ready(response)
}

fn as_text<S: Serializer>(id: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::{self, Body};
    use axum::http::{Method, Request};
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;

    #[derive(Debug)]
    struct FakeNode {
        ready: AtomicBool,
    }

    impl StatusSource for FakeNode {
        fn is_ready(&self) -> bool {
            self.ready.load(Ordering::Relaxed)
        }

        fn may_ask(&self, _key: NodeId) -> bool {
            true
        }

        fn status(&self) -> NodeStatus {
            NodeStatus {
                role: Role::Gateway,
                version: "1.2.3",
                draining: false,
                node_id: NodeId::from_bytes([0xa5; 32]),
                site: Some("fra-1".to_owned()),
                region: Some("eu".to_owned()),
                provider: None,
                uptime_s: 61,
                connections: 2,
                wire_sent_bytes: 3,
                wire_received_bytes: 4,
                rate_bytes_per_s: None,
                repository: Some("00ff".to_owned()),
                origin_read_bytes: Some(5),
                cache: None,
            }
        }

        fn metrics(&self) -> String {
            "forebay_connections 2\n".to_owned()
        }
    }

    fn node() -> Arc<FakeNode> {
        Arc::new(FakeNode { ready: AtomicBool::new(true) })
    }

    /// Asks a router over `node`: status, and the body as text.
    async fn ask(node: Arc<FakeNode>, method: Method, path: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let response = router(node).oneshot(request).await.unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        let status = response.status();
        let body = body::to_bytes(response.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_process_that_runs_is_healthy_even_when_not_ready() {
        let node = node();
        node.ready.store(false, Ordering::Relaxed);
        assert_eq!(ask(node, Method::GET, "/healthz").await, (StatusCode::OK, "ok".to_owned()));
    }

    #[tokio::test]
    async fn readiness_follows_the_node() {
        let node = node();
        let ready = ask(Arc::clone(&node), Method::GET, "/readyz").await;
        assert_eq!(ready, (StatusCode::OK, "ready".to_owned()));
        node.ready.store(false, Ordering::Relaxed);
        let draining = ask(node, Method::GET, "/readyz").await;
        assert_eq!(draining, (StatusCode::SERVICE_UNAVAILABLE, "not ready".to_owned()));
    }

    #[tokio::test]
    async fn the_status_has_every_field() {
        let (status, body) = ask(node(), Method::GET, "/v1/status").await;
        assert_eq!(status, StatusCode::OK);
        let expected = json!({
            "role": "gateway",
            "version": "1.2.3",
            "draining": false,
            "rate_bytes_per_s": null,
            "repository": "00ff",
            "node_id": "a5".repeat(32),
            "site": "fra-1",
            "region": "eu",
            "provider": null,
            "uptime_s": 61,
            "connections": 2,
            "wire_sent_bytes": 3,
            "wire_received_bytes": 4,
            "origin_read_bytes": 5,
            "cache": null,
        });
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    }

    #[tokio::test]
    async fn nothing_else_is_answered() {
        assert_eq!(ask(node(), Method::GET, "/v1/other").await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(node(), Method::POST, "/v1/status").await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}

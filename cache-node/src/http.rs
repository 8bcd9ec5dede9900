//! What a node answers over HTTP.
//!
//! | path | answer |
//! |---|---|
//! | `GET /healthz` | 200 `ok`: the process runs |
//! | `GET /readyz` | 200 `ready`, or 503 `not ready`: send no work here |
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

/// Where the answers come from. Both calls are made for every request: they must not wait.
pub trait StatusSource: fmt::Debug + Send + Sync {
    /// Whether the node takes work: its store is open, and it is not draining.
    fn is_ready(&self) -> bool;

    /// What the node says about itself now.
    fn status(&self) -> NodeStatus;
}

/// A node's answer about itself. Fields may be added to the JSON; none is renamed or taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Edge or gateway.
    pub role: Role,
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
}

/// The routes of a node.
pub fn router(source: Arc<dyn StatusSource>) -> Router {
    Router::new()
        .route("/healthz", get("ok"))
        .route("/readyz", get(readyz))
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

        fn status(&self) -> NodeStatus {
            NodeStatus {
                role: Role::Gateway,
                node_id: NodeId::from_bytes([0xa5; 32]),
                site: Some("fra-1".to_owned()),
                region: Some("eu".to_owned()),
                provider: None,
                uptime_s: 61,
            }
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
            "node_id": "a5".repeat(32),
            "site": "fra-1",
            "region": "eu",
            "provider": null,
            "uptime_s": 61,
        });
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    }

    #[tokio::test]
    async fn nothing_else_is_answered() {
        assert_eq!(ask(node(), Method::GET, "/v1/other").await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(node(), Method::POST, "/v1/status").await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}

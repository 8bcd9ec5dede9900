//! Bodies that come at a rate, end early, or stop.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Shared;

/// Sent at once, so that a rate is even and a count is near the truth at every moment.
const PIECE: usize = 32 << 10;

/// Between the last bytes of a body and its cut: they reach the client first, so that the log tells what has arrived.
const BEFORE_CUT: Duration = Duration::from_millis(200);

/// A rate shared by all connections.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes_per_s: Option<u64>,
    free_at: Option<Instant>,
}

impl Pace {
    pub(super) fn set(&self, bytes_per_s: Option<u64>) {
        *self.0.lock() = State { bytes_per_s, free_at: None };
    }

    /// Returns when `bytes` more may pass.
    async fn pass(&self, bytes: usize) {
        let until = {
            let mut state = self.0.lock();
            let Some(rate) = state.bytes_per_s else { return };
            let start = state.free_at.unwrap_or_else(Instant::now).max(Instant::now());
            let nanos = bytes as u64 * 1_000_000_000 / rate.max(1);
            state.free_at = Some(start + Duration::from_nanos(nanos));
            start
        };
        tokio::time::sleep_until(until).await;
    }
}

/// How an answer's body ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Whole,
    Cut,
    Silence,
}

/// A body that is counted and paced piece by piece.
pub(super) fn answer(shared: Arc<Shared>, place: usize, data: Bytes, end: End) -> Body {
    let lingers = !data.is_empty();
    let state = (shared, data);
    Body::from_stream(stream::unfold(Some(state), move |state| async move {
        let (shared, mut data) = state?;
        if data.is_empty() {
            return match end {
                End::Whole => None,
                End::Cut => {
                    if lingers {
                        tokio::time::sleep(BEFORE_CUT).await;
                    }
                    Some((Err(io::Error::other("cut by order of the test")), None))
                }
                End::Silence => pending().await,
            };
        }
        let piece = data.split_to(data.len().min(PIECE));
        shared.download.pass(piece.len()).await;
        shared.log_bytes(place, piece.len());
        Some((Ok(piece), Some((shared, data))))
    }))
}

/// Reads a request's body at the upload rate; `None` when the client went away.
pub(super) async fn receive(shared: &Shared, place: usize, body: Body) -> Option<Bytes> {
    let mut whole = BytesMut::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.ok()?;
        shared.upload.pass(piece.len()).await;
        shared.log_bytes(place, piece.len());
        whole.extend_from_slice(&piece);
    }
    Some(whole.freeze())
}

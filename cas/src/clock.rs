//! The only place that reads clocks and waits.
#![allow(clippy::disallowed_methods, reason = "this module implements what the lint points to")]

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_format::Timestamp;

/// Wall time and elapsed time. Shells hold an `Arc<dyn Clock>`; cores take `now` as an argument.
pub trait Clock: Send + Sync + Debug {
    /// Wall time: for people, labels and file times, never for safety.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point; never goes back.
    fn elapsed(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Elapsed time counts from here.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Timestamp { seconds: since.as_secs().try_into().unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
            }
            // A clock before 1970 is wrong; the time is only a label.
            Err(_before) => Timestamp { seconds: 0, nanos: 0 },
        }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Waits without holding the thread.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Gives up waiting after a time.
///
/// # Errors
/// [`Elapsed`] if it took longer.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout(duration, future).await.map_err(|_elapsed| Elapsed)
}

/// It took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct Elapsed;

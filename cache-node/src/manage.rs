//! What a node answers about itself, and how it leaves: everything else goes on to its duty.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_cas::clock::Clock;
use forebay_cas::sync::Mutex;
use forebay_transfer::authority::signer;
use forebay_transfer::{Answer, NodeId, Service};
use forebay_transfer_proto::{Purpose, Reply, Request, Signed, Trouble};
use futures_util::future::BoxFuture;

use crate::http::StatusSource;

/// The longest that a node may take to leave.
const WITHIN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether a node is leaving, and what it still has to end.
#[derive(Debug)]
pub(crate) struct Leaving {
    clock: Arc<dyn Clock>,
    /// Requests that are being answered.
    running: AtomicUsize,
    /// Elapsed time by which it is gone; `None` while it stays.
    deadline: Mutex<Option<Duration>>,
}

impl Leaving {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, running: AtomicUsize::new(0), deadline: Mutex::default() }
    }

    /// Takes no more work from now on. A second call can only shorten the time.
    pub(crate) fn begin(&self, within: Duration) {
        let deadline = self.clock.elapsed() + within.min(WITHIN_MAX);
        let mut set = self.deadline.lock();
        *set = Some(set.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.deadline.lock().is_some()
    }

    /// Whether it may go: nothing is being answered any more, or the time is up.
    pub(crate) fn is_over(&self) -> bool {
        let Some(deadline) = *self.deadline.lock() else { return false };
        self.running.load(Ordering::Relaxed) == 0 || self.clock.elapsed() >= deadline
    }
}

/// A request that is being answered.
struct Running(Arc<Leaving>);

impl Running {
    fn new(leaving: &Arc<Leaving>) -> Self {
        leaving.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(leaving))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Stands before the service of a node.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) own: NodeId,
    pub(crate) duty: Arc<dyn Service>,
    pub(crate) status: Arc<dyn StatusSource>,
    pub(crate) leaving: Arc<Leaving>,
}

impl Managed {
    /// Who is at the other end of the connection is proven; the claim must be theirs, so that nobody's is used again.
    fn is_of(peer: NodeId, claim: &Signed) -> bool {
        signer(claim, Purpose::Claim).is_ok_and(|key| key == peer)
    }

    async fn tell(peer: NodeId, claim: Signed, status: Arc<dyn StatusSource>, own: NodeId, answer: Answer) {
        if !Self::is_of(peer, &claim) || (peer != own && !status.may_ask(peer)) {
            return answer.trouble(Trouble::Auth, "this key is not known here; its operator can add it").await;
        }
        match serde_json::to_string(&status.status()) {
            Ok(text) => answer.reply(Reply::Status(text)).await,
            Err(error) => answer.trouble(Trouble::Failed, &error.to_string()).await,
        }
    }
}

impl Service for Managed {
    fn handle(&self, peer: NodeId, request: Request, answer: Answer) -> BoxFuture<'static, ()> {
        match request {
            Request::Status { claim } => Box::pin(Self::tell(peer, claim, Arc::clone(&self.status), self.own, answer)),
            Request::Drain { claim, within_s } => {
                let is_own = peer == self.own && Self::is_of(peer, &claim);
                if is_own {
                    self.leaving.begin(Duration::from_secs(within_s.into()));
                }
                Box::pin(async move {
                    if is_own {
                        answer.reply(Reply::Done).await;
                    } else {
                        let message = "only the node's own key makes it leave: name its file with --identity";
                        answer.trouble(Trouble::Auth, message).await;
                    }
                })
            }
            // What was set aside can be given back until the end.
            request if self.leaving.has_begun() && !matches!(request, Request::Release { .. }) => {
                Box::pin(async move { answer.trouble(Trouble::Busy, "the node is leaving").await })
            }
            request => {
                let running = Running::new(&self.leaving);
                let answering = self.duty.handle(peer, request, answer);
                Box::pin(async move {
                    answering.await;
                    drop(running);
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_cas::clock::SystemClock;

    use super::*;

    #[test]
    fn a_node_goes_when_nothing_runs_or_the_time_is_up() {
        let leaving = Arc::new(Leaving::new(Arc::new(SystemClock::new())));
        assert!(!leaving.is_over() && !leaving.has_begun());
        let running = Running::new(&leaving);
        leaving.begin(Duration::from_secs(3_600));
        assert!(leaving.has_begun() && !leaving.is_over(), "it still answers");
        leaving.begin(Duration::from_secs(7_200));
        drop(running);
        assert!(leaving.is_over());
        let running = Running::new(&leaving);
        leaving.begin(Duration::ZERO);
        assert!(leaving.is_over(), "the time is up");
        drop(running);
    }
}

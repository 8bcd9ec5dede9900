//! How fast a node sends: the rate of the link that each tenant has ordered, and its own limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_cas::clock::{self, Clock};
use forebay_cas::sync::Mutex;
use forebay_transfer_proto::{Claim, LinkTier, MonotonicUs, Pace, Pacer, RUN_BYTES, RateBytesPerS};

/// A bucket holds what its rate sends in this time, and a run at least.
const BURST: Duration = Duration::from_millis(10);
/// Tenants and tiers whose buckets are kept; those of the others start full again.
const LINKS_MAX: usize = 4096;

/// A bucket that senders pass one by one, in the order in which they came: no stream starves.
type Turnstile = tokio::sync::Mutex<Pacer>;

/// The buckets of a node.
#[derive(Debug)]
pub(crate) struct Paces {
    clock: Arc<dyn Clock>,
    node: Option<Turnstile>,
    links: Mutex<BTreeMap<(String, LinkTier), Arc<Turnstile>>>,
}

impl Paces {
    /// Nothing sent yet. `limit` is that of all clients together.
    pub(crate) fn new(clock: Arc<dyn Clock>, limit: Option<RateBytesPerS>) -> Self {
        let node = limit.map(|rate| bucket(rate, moment(clock.as_ref())));
        Self { clock, node, links: Mutex::default() }
    }

    /// Returns when so many bytes may be sent under this claim; they count as sent then.
    pub(crate) async fn turn(&self, claim: &Claim, bytes: u64) {
        self.pass(&self.link(claim), bytes).await;
        if let Some(node) = &self.node {
            self.pass(node, bytes).await;
        }
    }

    async fn pass(&self, turnstile: &Turnstile, bytes: u64) {
        let mut pacer = turnstile.lock().await;
        loop {
            let now = moment(self.clock.as_ref());
            match pacer.handle_send(now, bytes) {
                Pace::Now => return,
                Pace::At(at) => clock::sleep(at.since(now)).await,
            }
        }
    }

    fn link(&self, claim: &Claim) -> Arc<Turnstile> {
        let tier = claim.tier.parse().unwrap_or(LinkTier::Gbit10);
        let mut links = self.links.lock();
        if links.len() >= LINKS_MAX {
            links.retain(|_, link| Arc::strong_count(link) > 1);
        }
        let link = links
            .entry((claim.tenant.clone(), tier))
            .or_insert_with(|| Arc::new(bucket(tier.rate_cap(), moment(self.clock.as_ref()))));
        Arc::clone(link)
    }
}

fn bucket(rate: RateBytesPerS, now: MonotonicUs) -> Turnstile {
    Turnstile::new(Pacer::new(rate, rate.bytes_in(BURST).max(RUN_BYTES), now))
}

fn moment(clock: &dyn Clock) -> MonotonicUs {
    MonotonicUs(u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay_format::Timestamp;
    use futures_util::FutureExt;

    use super::*;

    #[derive(Debug, Default)]
    struct Microseconds(AtomicU64);

    impl Clock for Microseconds {
        fn now(&self) -> Timestamp {
            Timestamp { seconds: 0, nanos: 0 }
        }

        fn elapsed(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }
    }

    fn claim(tenant: &str, tier: &str) -> Claim {
        Claim {
            repository: None,
            tenant: tenant.to_owned(),
            job: String::new(),
            dataset: String::new(),
            class: String::new(),
            tier: tier.to_owned(),
            not_after: 0,
        }
    }

    /// Whether the bytes may be sent without a wait. One that may not has taken nothing.
    fn passes(paces: &Paces, claim: &Claim, bytes: u64) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { paces.turn(claim, bytes).now_or_never().is_some() })
    }

    #[test]
    fn each_tenant_has_the_rate_of_its_tier() {
        let clock = Arc::new(Microseconds::default());
        let paces = Paces::new(Arc::<Microseconds>::clone(&clock), None);
        let (ten, forty, other) = (claim("a", "10g"), claim("a", "40g"), claim("b", "10g"));
        // A burst of 10 ms: 12.5 MB at 10 Gbit/s, 50 MB at 40.
        assert!(passes(&paces, &ten, 12_500_000) && !passes(&paces, &ten, 1_250_000));
        assert!(passes(&paces, &forty, 50_000_000) && !passes(&paces, &forty, 5_000_000));
        assert!(passes(&paces, &other, 12_500_000));
        clock.0.store(1_000, Ordering::Relaxed);
        assert!(passes(&paces, &ten, 1_250_000) && !passes(&paces, &ten, 1));
        assert!(passes(&paces, &forty, 5_000_000) && !passes(&paces, &forty, 1));
    }

    #[test]
    fn the_limit_of_the_node_holds_for_all_together() {
        let clock = Arc::new(Microseconds::default());
        let paces = Paces::new(Arc::<Microseconds>::clone(&clock), RateBytesPerS::new(1_000_000));
        assert!(passes(&paces, &claim("a", "10g"), RUN_BYTES / 2));
        assert!(passes(&paces, &claim("b", "100g"), RUN_BYTES / 2));
        assert!(!passes(&paces, &claim("c", "40g"), 1_000));
        clock.0.store(1_000, Ordering::Relaxed);
        assert!(passes(&paces, &claim("d", "40g"), 1_000));
    }
}

//! What leaves a gateway: counted for the ledger, and set against budgets before it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_cas::budgets::{Booked, BudgetError, Budgets};
use forebay_cas::clock::Clock;
use forebay_cas::ledger::LedgerWriter;
use forebay_cas::sync::Mutex;
use forebay_cas::{Classify, ErrorClass, chain};
use forebay_policy::calendar::Day;
use forebay_policy::rates::{RateCard, Route};
use forebay_policy::{Price, Usage, UsageKey};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, Trouble};

use crate::gate::Refusal;

/// What is booked at once for a request without a reservation; a crash leaves at most this booked and unused a tenant.
const SLICE_BYTES: u64 = 16 << 20;
/// A reservation that nobody used for so long is given back: its client is gone.
const RESERVATION_LIFE: Duration = Duration::from_secs(600);
/// The same for a slice.
const SLICE_LIFE: Duration = Duration::from_secs(30);
/// How old the knowledge may be whether a tenant has a budget at all.
const LIMITS_LIFE: Duration = Duration::from_secs(1);
/// What this place is called in ledgers.
const GATEWAY: &str = "gateway";

/// Where bookings stand that are in use.
#[derive(Debug, Default)]
struct Open {
    booked: Vec<(Booked, u64)>,
    touched: Duration,
}

impl Open {
    /// Takes bytes out of what is booked and not used.
    fn take(&mut self, bytes: u64, now: Duration) -> bool {
        self.touched = now;
        let left: u64 = self.booked.iter().map(|(booked, used)| booked.booking.bytes - used).sum();
        if left < bytes {
            return false;
        }
        let mut rest = bytes;
        for (booked, used) in &mut self.booked {
            let part = rest.min(booked.booking.bytes - *used);
            *used += part;
            rest -= part;
        }
        true
    }
}

/// Counts and bills. Blocking: booking writes into the repository.
#[derive(Debug)]
pub struct Bill {
    ledger: LedgerWriter,
    budgets: Budgets,
    rates: Option<RateCard>,
    clock: Arc<dyn Clock>,
    open: Mutex<BTreeMap<Account, Open>>,
    limits: Mutex<(Option<Duration>, BTreeSet<String>)>,
    /// Content bytes counted since wire bytes were spread last.
    unspread: Mutex<BTreeMap<UsageKey, u64>>,
}

/// Whose bookings: of a reservation, or of all requests without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Account {
    Reserved(Reservation),
    Slice(String, String),
}

impl Bill {
    /// A bill of these.
    #[must_use]
    pub fn new(ledger: LedgerWriter, budgets: Budgets, rates: Option<RateCard>, clock: Arc<dyn Clock>) -> Self {
        Self {
            ledger,
            budgets,
            rates,
            clock,
            open: Mutex::default(),
            limits: Mutex::default(),
            unspread: Mutex::default(),
        }
    }

    /// Sets bytes aside, durably, or refuses.
    pub(crate) fn reserve(&self, claim: &Claim, to: &str, id: Reservation, bytes: u64) -> Result<(), Refusal> {
        if bytes == 0 || !self.is_limited(claim)? {
            return Ok(());
        }
        let booked = self.book(claim, to, bytes)?;
        let mut open = self.open.lock();
        let account = open.entry(Account::Reserved(id)).or_default();
        account.booked.push((booked, 0));
        account.touched = self.clock.elapsed();
        Ok(())
    }

    /// Gives back what was reserved and not used.
    pub(crate) fn release(&self, id: Reservation) -> Result<(), Refusal> {
        let open = self.open.lock().remove(&Account::Reserved(id));
        open.map_or(Ok(()), |open| self.settle(open))
    }

    /// Sets bytes that are about to leave against the budget. Nothing leaves that this refuses.
    pub(crate) fn charge(
        &self,
        claim: &Claim,
        to: &str,
        reservation: Option<Reservation>,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let now = self.clock.elapsed();
        if let Some(id) = reservation
            && let Some(open) = self.open.lock().get_mut(&Account::Reserved(id))
            && open.take(bytes, now)
        {
            return Ok(());
        }
        if !self.is_limited(claim)? {
            return Ok(());
        }
        let account = Account::Slice(claim.tenant.clone(), claim.job.clone());
        if self.open.lock().entry(account.clone()).or_default().take(bytes, now) {
            return Ok(());
        }
        // What is left may be less than a slice and still enough.
        let booked = match self.book(claim, to, bytes.max(SLICE_BYTES)) {
            Err((Trouble::Budget, _)) if bytes < SLICE_BYTES => self.book(claim, to, bytes)?,
            other => other?,
        };
        let mut open = self.open.lock();
        let slice = open.entry(account).or_default();
        slice.booked.push((booked, 0));
        let taken = slice.take(bytes, now);
        debug_assert!(taken, "just booked");
        Ok(())
    }

    /// Counts a frame that left.
    pub(crate) fn count(&self, claim: &Claim, to: &str, usage: Usage) {
        let key = key(claim, GATEWAY, to);
        *self.unspread.lock().entry(key.clone()).or_default() += usage.sent_bytes;
        if self.ledger.count(&key, usage).is_err() {
            tracing::error!(tenant = claim.tenant, "a counter of the ledger is full");
        }
    }

    /// Spreads what the wire carried over what was sent since the last time, so that the sum is exact.
    pub(crate) fn spread(&self, wire_bytes: u64) {
        let parts = std::mem::take(&mut *self.unspread.lock());
        let total: u128 = parts.values().map(|part| u128::from(*part)).sum();
        let mut rest = wire_bytes;
        let largest = parts
            .iter()
            .max_by_key(|(_, part)| **part)
            .map(|(key, _)| key.clone())
            .unwrap_or_else(|| UsageKey { from: GATEWAY.to_owned(), ..UsageKey::default() });
        for (key, part) in parts {
            let share = (u128::from(part) * u128::from(wire_bytes)).checked_div(total).unwrap_or(0);
            let share = u64::try_from(share).unwrap_or(u64::MAX).min(rest);
            rest -= share;
            let _full = self.ledger.count(&key, Usage { wire_bytes: share, ..Usage::default() });
        }
        if rest > 0 {
            let _full = self.ledger.count(&largest, Usage { wire_bytes: rest, ..Usage::default() });
        }
    }

    /// Writes the ledger down, and gives back what clients that are gone had set aside.
    pub(crate) fn flush(&self, is_last: bool) {
        let now = self.clock.elapsed();
        let is_over = |account: &Account, open: &Open| {
            let life = match account {
                Account::Reserved(_) => RESERVATION_LIFE,
                Account::Slice(..) => SLICE_LIFE,
            };
            is_last || open.touched + life < now
        };
        let mut over = Vec::new();
        self.open.lock().retain(|account, open| {
            let keep = !is_over(account, open);
            if !keep {
                over.push(std::mem::take(open));
            }
            keep
        });
        for open in over {
            if let Err((_, message)) = self.settle(open) {
                tracing::warn!(message, "what was set aside is not given back");
            }
        }
        if let Err(error) = self.ledger.flush() {
            tracing::warn!(error = chain(&error), "the ledger is not written down; it is tried again");
        }
    }

    fn settle(&self, open: Open) -> Result<(), Refusal> {
        for (booked, used) in open.booked {
            let _settled_before = self.budgets.settle(&booked, used).map_err(|error| refusal(&error))?;
        }
        Ok(())
    }

    fn book(&self, claim: &Claim, to: &str, bytes: u64) -> Result<Booked, Refusal> {
        let price = self.price(claim, to);
        self.budgets.book(&claim.tenant, &claim.job, bytes, price).map_err(|error| refusal(&error))
    }

    fn price(&self, claim: &Claim, to: &str) -> Option<Price> {
        let day = Day::of_unix(self.clock.now().seconds);
        let route = Route { provider: None, from: GATEWAY, to, tier: &claim.tier };
        self.rates.as_ref()?.price(&route, day)
    }

    /// Whether any budget stands over this tenant. Asked of the journal once a second at the most.
    fn is_limited(&self, claim: &Claim) -> Result<bool, Refusal> {
        let now = self.clock.elapsed();
        let mut limits = self.limits.lock();
        if limits.0.is_none_or(|read| read + LIMITS_LIFE < now) {
            let standing = self.budgets.list().map_err(|error| refusal(&error))?;
            limits.1 = standing.iter().filter(|one| one.limit.is_some()).map(|one| one.scope.tenant.clone()).collect();
            limits.0 = Some(now);
        }
        Ok(limits.1.contains(&claim.tenant))
    }
}

fn key(claim: &Claim, from: &str, to: &str) -> UsageKey {
    UsageKey {
        tenant: claim.tenant.clone(),
        job: claim.job.clone(),
        dataset: claim.dataset.clone(),
        class: claim.class.clone(),
        tier: claim.tier.clone(),
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn refusal(error: &BudgetError) -> Refusal {
    let trouble = match error.class() {
        ErrorClass::Budget => Trouble::Budget,
        ErrorClass::Usage => Trouble::Usage,
        ErrorClass::Corrupt => Trouble::Corrupt,
        ErrorClass::Net => Trouble::Net,
        _ => Trouble::Failed,
    };
    (trouble, chain(error))
}

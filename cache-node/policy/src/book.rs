//! The budget book: what tenants and jobs may send, what is booked and what was used.
//!
//! A state machine without IO. Whoever wants to send asks [`BudgetBook::check`] first, writes the [`Change`] where all
//! gateways see it in one order, and hands every change of that order to [`BudgetBook::apply`]. The same changes give the
//! same book everywhere. A booking counts until it is settled, whatever happens to its holder: a crash frees nothing.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::{Budget, Currency, Day, Money, MoneyError, Month, Price};

mod scope;
mod tally;

pub use self::scope::{NAME_BYTES_MAX, Scope, ScopeError};
pub use self::tally::{Priced, Tally};

/// Random name of a booking, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingId(pub [u8; 16]);

impl fmt::Display for BookingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BookingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BookingId({self})")
    }
}

/// Bytes that somebody may send from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// Its name.
    pub id: BookingId,
    /// Who holds it and will settle it.
    pub holder: String,
    /// Who pays.
    pub tenant: String,
    /// For which job; empty for none.
    pub job: String,
    /// The month it counts for, also if it is settled in the next one.
    pub month: Month,
    /// Bytes at most.
    pub bytes: u64,
    /// What these cost; `None` if there is no price.
    pub cost: Option<Money>,
}

impl Booking {
    /// The scopes that a budget for it may have.
    #[must_use]
    pub fn scopes(&self) -> [Scope; 2] {
        let tenant = || self.tenant.clone();
        [Scope { tenant: tenant(), job: None }, Scope { tenant: tenant(), job: Some(self.job.clone()) }]
    }
}

/// What a booking came to in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Bytes that really left.
    pub bytes: u64,
    /// What they cost; `None` if there is no price.
    pub cost: Option<Money>,
}

impl Used {
    /// So many bytes, all at one price.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`] if the cost cannot be kept exactly.
    pub fn at(bytes: u64, price: Option<&Price>) -> Result<Self, MoneyError> {
        Ok(Self { bytes, cost: price.map(|price| price.cost(bytes)).transpose()? })
    }
}

/// One step of the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets the budget of a scope, in place of the one before.
    Set {
        /// Whose budget.
        scope: Scope,
        /// How much in a calendar month; `None` takes the limit away.
        limit: Option<Budget>,
    },
    /// Books.
    Book(Booking),
    /// Ends a booking and gives back what was not used.
    Settle {
        /// The booking.
        id: BookingId,
        /// What it came to.
        used: Used,
    },
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// It counts.
    Done,
    /// Nothing: no booking of this name is open. It was settled before, or there was none.
    NotOpen,
    /// Nothing: a booking of this name is open already.
    IdTaken,
}

/// A booking that is open, with what the book has to know to settle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBooking {
    /// The booking.
    pub booking: Booking,
    /// Whether it counts for its job too: whether that had a budget when it was booked.
    pub counts_for_job: bool,
}

/// An account: what a scope may send, and what it has used, month by month.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// How much in a calendar month.
    pub limit: Option<Budget>,
    months: BTreeMap<Month, Spending>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spending {
    settled: Tally,
    open: Tally,
}

impl Account {
    /// What was settled in each month.
    pub fn settled(&self) -> impl Iterator<Item = (Month, &Tally)> {
        self.months
            .iter()
            .filter(|(_, spending)| !spending.settled.is_empty())
            .map(|(m, spending)| (*m, &spending.settled))
    }
}

/// All budgets and bookings; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BudgetBook {
    /// One for each tenant that ever booked, and for each scope that ever had a budget.
    accounts: BTreeMap<Scope, Account>,
    open: BTreeMap<BookingId, OpenBooking>,
}

impl BudgetBook {
    /// A book from what [`Self::accounts`] and [`Self::open`] gave.
    ///
    /// # Errors
    /// [`BookError`] if the parts do not make a book.
    pub fn restore(
        accounts: impl IntoIterator<Item = (Scope, Option<Budget>, Vec<(Month, Tally)>)>,
        open: impl IntoIterator<Item = OpenBooking>,
    ) -> Result<Self, BookError> {
        let mut book = Self::default();
        for (scope, limit, months) in accounts {
            let months =
                months.into_iter().map(|(month, settled)| (month, Spending { settled, open: Tally::default() }));
            book.accounts.insert(scope, Account { limit, months: months.collect() });
        }
        for one in open {
            let scopes = book.counted(&one);
            if one.counts_for_job && !book.accounts.contains_key(&scopes[1]) {
                return Err(BookError::Inconsistent { id: one.booking.id });
            }
            book.count(&scopes, one.booking.month, |spending| spending.open.add(one.booking.bytes, one.booking.cost))?;
            if let Some(twice) = book.open.insert(one.booking.id, one) {
                return Err(BookError::Inconsistent { id: twice.booking.id });
            }
        }
        Ok(book)
    }

    /// Whether a booking fits into all budgets it falls under. Says nothing about bookings that others make meanwhile:
    /// the answer holds only if the change is the very next one.
    ///
    /// # Errors
    /// [`BookError::Refused`] with the figures of the first budget it does not fit into.
    pub fn check(&self, booking: &Booking) -> Result<(), BookError> {
        if self.open.contains_key(&booking.id) {
            return Err(BookError::Inconsistent { id: booking.id });
        }
        for scope in booking.scopes() {
            let account = self.accounts.get(&scope);
            let nothing = Spending::default();
            let spending = account.and_then(|account| account.months.get(&booking.month)).unwrap_or(&nothing);
            // What nobody limits must still be countable.
            let mut after = spending.open.clone();
            after.add(booking.bytes, booking.cost)?;
            let Some(limit) = account.and_then(|account| account.limit) else { continue };
            let used = spending.settled.plus(&spending.open)?;
            check_limit(scope, limit, &used, booking)?;
        }
        Ok(())
    }

    /// Takes in the next change. Limits are not asked: who wrote the change has done that, and what is written counts.
    ///
    /// # Errors
    /// [`BookError::Money`] if a sum does not fit; the book is as it was then.
    pub fn apply(&mut self, change: &Change) -> Result<Applied, BookError> {
        match change {
            Change::Set { scope, limit } => {
                self.accounts.entry(scope.clone()).or_default().limit = *limit;
                Ok(Applied::Done)
            }
            Change::Book(booking) if self.open.contains_key(&booking.id) => Ok(Applied::IdTaken),
            Change::Book(booking) => {
                let counts_for_job = self.accounts.contains_key(&booking.scopes()[1]);
                let one = OpenBooking { booking: booking.clone(), counts_for_job };
                let scopes = self.counted(&one);
                self.count(&scopes, booking.month, |spending| spending.open.add(booking.bytes, booking.cost))?;
                self.open.insert(booking.id, one);
                Ok(Applied::Done)
            }
            Change::Settle { id, used } => {
                let Some(one) = self.open.get(id) else { return Ok(Applied::NotOpen) };
                let (booking, scopes) = (one.booking.clone(), self.counted(one));
                self.count(&scopes, booking.month, |spending| {
                    spending.settled.add(used.bytes, used.cost)?;
                    spending.open.remove(booking.bytes, booking.cost)
                })?;
                self.open.remove(id);
                Ok(Applied::Done)
            }
        }
    }

    /// How a scope stands in a month, whether or not it has a budget.
    #[must_use]
    pub fn standing(&self, scope: &Scope, month: Month) -> Standing {
        let account = self.accounts.get(scope);
        let spending = account.and_then(|account| account.months.get(&month)).cloned().unwrap_or_default();
        Standing {
            scope: scope.clone(),
            month,
            limit: account.and_then(|account| account.limit),
            settled: spending.settled,
            open: spending.open,
        }
    }

    /// All budgets as they stand in a month, by scope.
    pub fn budgets(&self, month: Month) -> impl Iterator<Item = Standing> {
        let limited = self.accounts.iter().filter(|(_, account)| account.limit.is_some());
        limited.map(move |(scope, _)| self.standing(scope, month))
    }

    /// All accounts by scope, for [`Self::restore`].
    pub fn accounts(&self) -> impl Iterator<Item = (&Scope, &Account)> {
        self.accounts.iter()
    }

    /// The open bookings by name.
    pub fn open(&self) -> impl Iterator<Item = &OpenBooking> {
        self.open.values()
    }

    /// An open booking.
    #[must_use]
    pub fn find_open(&self, id: BookingId) -> Option<&OpenBooking> {
        self.open.get(&id)
    }

    /// The scopes in whose accounts a booking counts; the tenant's is the first.
    fn counted(&self, one: &OpenBooking) -> Vec<Scope> {
        let [tenant, job] = one.booking.scopes();
        if one.counts_for_job { vec![tenant, job] } else { vec![tenant] }
    }

    /// Changes the spending of some scopes in a month: of all of them or, if one change fails, of none.
    fn count(
        &mut self,
        scopes: &[Scope],
        month: Month,
        change: impl Fn(&mut Spending) -> Result<(), MoneyError>,
    ) -> Result<(), BookError> {
        let mut changed = Vec::with_capacity(scopes.len());
        for scope in scopes {
            let account = self.accounts.get(scope);
            let mut spending = account.and_then(|account| account.months.get(&month)).cloned().unwrap_or_default();
            change(&mut spending)?;
            changed.push(spending);
        }
        for (scope, spending) in scopes.iter().zip(changed) {
            let months = &mut self.accounts.entry(scope.clone()).or_default().months;
            if spending == Spending::default() {
                months.remove(&month);
            } else {
                months.insert(month, spending);
            }
        }
        Ok(())
    }
}

/// How a budget stands in a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose budget.
    pub scope: Scope,
    /// The month.
    pub month: Month,
    /// How much; `None` for no budget.
    pub limit: Option<Budget>,
    /// What was used by bookings that are settled.
    pub settled: Tally,
    /// What open bookings hold.
    pub open: Tally,
}

impl Standing {
    /// The second, counted since 1970, at which it starts anew.
    #[must_use]
    pub fn resets_at(&self) -> i64 {
        self.month.end_unix()
    }

    /// Whether used and booked together have come to so many percent of the limit; never without a limit.
    #[must_use]
    pub fn has_reached(&self, percent: u8) -> bool {
        let (Some(limit), Ok(sum)) = (self.limit, self.settled.plus(&self.open)) else { return self.limit.is_some() };
        match (limit, sum.in_terms_of(&limit)) {
            (Budget::Bytes(limit), Budget::Bytes(sum)) => {
                u128::from(sum) * 100 >= u128::from(limit) * u128::from(percent)
            }
            (Budget::Money(limit), Budget::Money(sum)) => {
                let times = |money: Money, factor: u8| money.amount.checked_mul(factor.into());
                // What is too much to be multiplied is more than any mark.
                match (times(sum, 100), times(limit, percent)) {
                    (Some(sum), Some(mark)) => sum >= mark,
                    (None, _) => true,
                    (Some(_), None) => false,
                }
            }
            _ => false,
        }
    }

    /// Bytes in it, booked or used, whose cost is not known in the currency of the limit and so does not count.
    #[must_use]
    pub fn unpriced_bytes(&self) -> u64 {
        match self.limit {
            Some(Budget::Money(limit)) => {
                let unpriced = |tally: &Tally| tally.bytes().saturating_sub(tally.priced_bytes(limit.currency));
                unpriced(&self.settled).saturating_add(unpriced(&self.open))
            }
            _ => 0,
        }
    }
}

/// Why a booking is not made, or a change does not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BookError {
    /// It does not fit into a budget.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// The budget is in money and there is no price.
    #[error("the budget of {scope} is {limit} and there is no price for what was asked: add it to the rate card")]
    NoPrice {
        /// Whose budget.
        scope: Scope,
        /// How much it is.
        limit: Budget,
    },
    /// The budget is in another currency than the price.
    #[error("the budget of {scope} is {limit} and the price is in {found}: set the budget in the rate card's currency")]
    OtherCurrency {
        /// Whose budget.
        scope: Scope,
        /// How much it is.
        limit: Budget,
        /// Currency of the price.
        found: Currency,
    },
    /// Bookings that contradict each other.
    #[error("the booking {id} stands twice, or counts for a job that has no account")]
    Inconsistent {
        /// The booking.
        id: BookingId,
    },
    /// A sum does not fit.
    #[error("the sums of the budget book do not fit")]
    Money(#[from] MoneyError),
}

/// A budget is too small for what was asked. All three figures are in the terms of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the budget of {scope} refuses: {asked} asked for, {used} of {limit} used or booked in {month}; it starts anew on {} \
     UTC, or `forebay egress budget set {scope} AMOUNT` raises it",
    Day::of_unix(*.resets_at)
)]
pub struct Refusal {
    /// Whose budget.
    pub scope: Scope,
    /// The month.
    pub month: Month,
    /// How much it is.
    pub limit: Budget,
    /// Used and booked already.
    pub used: Budget,
    /// Asked for now.
    pub asked: Budget,
    /// The second, counted since 1970, at which the budget starts anew.
    pub resets_at: i64,
}

/// Whether what is used and what is asked for stay within a limit.
fn check_limit(scope: Scope, limit: Budget, used: &Tally, booking: &Booking) -> Result<(), BookError> {
    let (asked, fits) = match limit {
        Budget::Bytes(most) => {
            let sum = used.bytes().checked_add(booking.bytes);
            (Budget::Bytes(booking.bytes), sum.is_some_and(|sum| sum <= most))
        }
        Budget::Money(most) => {
            let Some(cost) = booking.cost else { return Err(BookError::NoPrice { scope, limit }) };
            if cost.currency != most.currency {
                return Err(BookError::OtherCurrency { scope, limit, found: cost.currency });
            }
            let sum = used.cost(most.currency).checked_add(cost);
            (Budget::Money(cost), sum.is_ok_and(|sum| sum.amount <= most.amount))
        }
    };
    if fits {
        return Ok(());
    }
    let (month, used) = (booking.month, used.in_terms_of(&limit));
    Err(Box::new(Refusal { scope, month, limit, used, asked, resets_at: month.end_unix() }).into())
}

#[cfg(test)]
mod tests;

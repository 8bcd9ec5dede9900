//! Budgets that all gateways of a repository share.
//!
//! Every set budget, booking and settlement is a record of one journal. A booking is checked against the newest state and
//! created as the very next record, or checked again: whoever loses the race for a number sees what won. So no budget is
//! overspent however many gateways book at once, and what is booked stays booked whatever happens to its gateway.
//!
//! ```no_run
//! # fn gateway(budgets: &forebay_cas::budgets::Budgets, price: Option<forebay_policy::Price>) -> Result<(), Box<dyn std::error::Error>> {
//! let booked = budgets.book("acme", "train", 40 << 20, price)?; // durable, or refused with all figures
//! // … send at most so many bytes …
//! budgets.settle(&booked, 12 << 20)?; // the rest is free again
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use forebay_format::RepositoryId;
use forebay_policy::{
    BookError, Booking, BookingId, Budget, Change, MoneyError, Month, OpenBooking, Price, Refusal, Scope, ScopeError,
    Standing, Used,
};

use crate::Surroundings;
use crate::class::{Classify, ErrorClass};
use crate::journal::{Chain, Journal, JournalError};
use crate::origin::Origin;
use crate::rng::Random;
use crate::sync::Mutex;

mod convert;
mod state;

pub use self::state::BudgetLedger;

/// Settlements in one record.
const SETTLEMENTS_MAX: usize = 1000;

/// The budgets of a repository. Blocking; see [`Surroundings::runtime`]. Shared by reference: calls of one process follow
/// one after the other.
///
/// On a remote store the caller has proven that creates are conditional, as `Repository::prepare_to_write` does.
#[derive(Debug)]
pub struct Budgets {
    shared: Mutex<Shared>,
    around: Surroundings,
    holder: String,
    ids: Random,
    nonces: Random,
}

#[derive(Debug)]
struct Shared {
    journal: Journal<BudgetLedger>,
    /// Bookings that nobody will use and whose records may be there or come in late, since the origin did not say; with
    /// the highest number that such a record can have.
    doubtful: Vec<(BookingId, u64)>,
}

/// A booking that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// What was booked.
    pub booking: Booking,
    /// The price it was booked at, and will be settled at.
    pub price: Option<Price>,
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// The booking ended; what was not used is free again.
    Now,
    /// Nothing: the booking is not open. It was settled before.
    Before,
}

impl Budgets {
    /// Reads the budgets. `holder` says who will settle what is booked here: the name of a node.
    ///
    /// # Errors
    /// [`BudgetError::Journal`] if a record is damaged or missing, or the origin fails.
    pub fn open(
        origin: Arc<Origin>,
        repository: RepositoryId,
        holder: String,
        around: Surroundings,
    ) -> Result<Self, BudgetError> {
        let mut journal = Journal::cold(origin, repository);
        around.runtime.block_on(async {
            journal.refresh().await?;
            journal.prove_end().await
        })?;
        let (ids, nonces) = (around.seed.stream("bookings"), around.seed.stream("nonces"));
        let shared = Mutex::new(Shared { journal, doubtful: Vec::new() });
        Ok(Self { shared, around, holder, ids, nonces })
    }

    /// Books so many bytes for a tenant's job in the current month, at this price. When it returns the booking is durable
    /// and counts everywhere. After an error nothing is booked for long: what the origin may have kept all the same is
    /// given back with the next call.
    ///
    /// # Errors
    /// [`BudgetError::Refused`] if a budget is too small, [`BudgetError::Book`] if a budget is in money and there is no
    /// price or one in another currency.
    pub fn book(&self, tenant: &str, job: &str, bytes: u64, price: Option<Price>) -> Result<Booked, BudgetError> {
        Scope::check(tenant, job)?;
        let booking = Booking {
            id: BookingId(self.ids.bytes()),
            holder: self.holder.clone(),
            tenant: tenant.to_owned(),
            job: job.to_owned(),
            month: self.month(),
            bytes,
            cost: price.map(|price| price.cost(bytes)).transpose()?,
        };
        let mut shared = self.shared.lock();
        self.give_back(&mut shared)?;
        let booked = self.append(&mut shared.journal, |state| {
            // An earlier try whose answer got lost may have come through in the end.
            if state.book().find_open(booking.id).is_some() {
                return Ok(Vec::new());
            }
            state.book().check(&booking)?;
            Ok(vec![Change::Book(booking.clone())])
        });
        if matches!(booked, Err(BudgetError::Journal(_))) {
            let number = shared.journal.state().sequence() + 1;
            shared.doubtful.push((booking.id, number));
        }
        booked?;
        Ok(Booked { booking, price })
    }

    /// Ends a booking with the bytes that really left.
    ///
    /// # Errors
    /// [`BudgetError::Journal`] if it is not known whether it ended: try again.
    pub fn settle(&self, booked: &Booked, used_bytes: u64) -> Result<Settled, BudgetError> {
        let used = Used::at(used_bytes, booked.price.as_ref())?;
        let not_open = self.settle_all(&[(booked.booking.id, used)])?;
        Ok(if not_open.is_empty() { Settled::Now } else { Settled::Before })
    }

    /// Ends several bookings with one record, for a shutdown or after a crash. Returns those that were not open.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub fn settle_all(&self, settlements: &[(BookingId, Used)]) -> Result<Vec<BookingId>, BudgetError> {
        let mut not_open = Vec::new();
        let mut shared = self.shared.lock();
        self.give_back(&mut shared)?;
        for some in settlements.chunks(SETTLEMENTS_MAX) {
            let mut closed = Vec::new();
            self.append(&mut shared.journal, |state| {
                let (open, others): (Vec<_>, Vec<_>) =
                    some.iter().copied().partition(|(id, _)| state.book().find_open(*id).is_some());
                closed = others.into_iter().map(|(id, _)| id).collect();
                Ok(open.into_iter().map(|(id, used)| Change::Settle { id, used }).collect())
            })?;
            not_open.append(&mut closed);
        }
        Ok(not_open)
    }

    /// Sets the budget of a scope for every calendar month, in place of the one before; `None` takes it away.
    ///
    /// # Errors
    /// [`BudgetError::Money`] if the amount is more than can be kept exactly.
    pub fn set(&self, scope: &Scope, limit: Option<Budget>) -> Result<(), BudgetError> {
        if let Some(Budget::Money(money)) = limit {
            money.to_parts()?;
        }
        let mut shared = self.shared.lock();
        self.give_back(&mut shared)?;
        self.append(&mut shared.journal, |_| Ok(vec![Change::Set { scope: scope.clone(), limit }]))
    }

    /// All budgets as they stand this month, newly read.
    ///
    /// # Errors
    /// [`BudgetError::Journal`] if they cannot be read.
    pub fn list(&self) -> Result<Vec<Standing>, BudgetError> {
        let month = self.month();
        self.read(|state| state.book().budgets(month).collect())
    }

    /// How one scope stands this month as far as this process knows, without asking the origin: for soft marks.
    #[must_use]
    pub fn standing(&self, scope: &Scope) -> Standing {
        self.shared.lock().journal.state().book().standing(scope, self.month())
    }

    /// All open bookings, newly read: after a crash a gateway finds its own here and settles them.
    ///
    /// # Errors
    /// [`BudgetError::Journal`] if they cannot be read.
    pub fn open_bookings(&self) -> Result<Vec<OpenBooking>, BudgetError> {
        self.read(|state| state.book().open().cloned().collect())
    }

    /// The month that counts now.
    fn month(&self) -> Month {
        Month::of_unix(self.around.clock.now().seconds)
    }

    fn read<T>(&self, look: impl FnOnce(&BudgetLedger) -> T) -> Result<T, BudgetError> {
        let mut shared = self.shared.lock();
        self.around.runtime.block_on(shared.journal.refresh())?;
        Ok(look(shared.journal.state()))
    }

    /// Gives back what an earlier call has booked without hearing of it.
    fn give_back(&self, shared: &mut Shared) -> Result<(), BudgetError> {
        let Shared { journal, doubtful } = shared;
        if doubtful.is_empty() {
            return Ok(());
        }
        self.append(journal, |state| {
            let open = doubtful.iter().filter(|(id, _)| state.book().find_open(*id).is_some());
            let used = Used { bytes: 0, cost: None };
            Ok(open.map(|(id, _)| Change::Settle { id: *id, used }).collect())
        })?;
        // A record that is still on its way finds its number taken.
        let state = journal.state();
        doubtful.retain(|(id, number)| state.sequence() < *number || state.book().find_open(*id).is_some());
        Ok(())
    }

    /// Appends the changes that `build` makes of the newest state; no changes, no record.
    fn append(
        &self,
        journal: &mut Journal<BudgetLedger>,
        mut build: impl FnMut(&BudgetLedger) -> Result<Vec<Change>, BudgetError> + Send,
    ) -> Result<(), BudgetError> {
        let (writer, tool, time) = (&self.around.writer, &self.around.tool, self.around.clock.now());
        let appended = self.around.runtime.block_on(journal.append(&self.nonces, |state| {
            let changes = build(state).map_err(Stop::Failed)?;
            if changes.is_empty() {
                return Err(Stop::Nothing);
            }
            Ok(state.record(writer, tool, time, &changes)?)
        }));
        match appended {
            Ok(_) | Err(Stop::Nothing) => Ok(()),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

/// Why nothing was appended.
#[derive(Debug)]
enum Stop {
    Nothing,
    Failed(BudgetError),
}

impl<E: Into<BudgetError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Budgets cannot be read, or refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// A budget is too small for what was asked.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// A booking cannot be checked against a budget.
    #[error(transparent)]
    Book(BookError),
    /// A name that no budget can have.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// An amount that cannot be kept exactly.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// The journal of the budgets failed.
    #[error("the budgets cannot be read or written")]
    Journal(#[from] JournalError),
}

impl From<BookError> for BudgetError {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Book(other),
        }
    }
}

impl Classify for BudgetError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(_) => ErrorClass::Budget,
            Self::Book(BookError::NoPrice { .. } | BookError::OtherCurrency { .. })
            | Self::Scope(_)
            | Self::Money(_) => ErrorClass::Usage,
            Self::Book(_) => ErrorClass::Failed,
            Self::Journal(source) => source.class(),
        }
    }
}

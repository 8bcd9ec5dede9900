//! The budgets: a log of its own, `ledger/budget/<number>`, and the states that sum it up.

use minicbor::{Decode, Encode};

use crate::ledger::{check_month, check_text};
use crate::log::{check_sequence, check_time};
use crate::{BookingId, DecodeError, Digest, Limits, Nonce, RepositoryId, Timestamp, sealed};

const RECORD_MAGIC: [u8; 8] = *b"FBYBUDR0";
const STATE_MAGIC: [u8; 8] = *b"FBYBUDS0";
const RECORD: &str = "budget record";
const STATE: &str = "budget state";
/// More whole units do not fit into a decimal of 96 bits with 18 decimals, which is what sums are kept in.
const WHOLE_MAX: u64 = 79_228_162_514;
/// Steps of an amount in one whole unit.
const PARTS: u64 = 1_000_000_000_000_000_000;

/// Money, `[currency, whole units, units of 10^-18]`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct BudgetMoney {
    /// Three capital letters (ISO 4217).
    #[n(0)]
    pub currency: String,
    /// Whole units, at most 79,228,162,514.
    #[n(1)]
    pub whole: u64,
    /// Units of 10^-18, below 10^18.
    #[n(2)]
    pub part: u64,
}

/// How much a budget is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BudgetAmount {
    /// Bytes.
    #[n(0)]
    Bytes(#[n(0)] u64),
    /// Money.
    #[n(1)]
    Money(#[n(0)] BudgetMoney),
}

/// A budget is set, in place of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetSet {
    /// Whose.
    #[n(0)]
    pub tenant: String,
    /// Of which job; `None` for the whole tenant.
    #[n(1)]
    pub job: Option<String>,
    /// How much in a calendar month; `None` for no limit.
    #[n(2)]
    pub limit: Option<BudgetAmount>,
}

/// Bytes are booked.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetBooking {
    /// Random name.
    #[n(0)]
    pub id: BookingId,
    /// Who will settle it.
    #[n(1)]
    pub holder: String,
    /// Who pays.
    #[n(2)]
    pub tenant: String,
    /// For which job; empty for none.
    #[n(3)]
    pub job: String,
    /// The month it counts for, as the number `YYYYMM`, UTC.
    #[n(4)]
    pub month: u32,
    /// Bytes at most.
    #[n(5)]
    pub bytes: u64,
    /// What they cost; `None` if there is no price.
    #[n(6)]
    pub cost: Option<BudgetMoney>,
}

/// A booking ends.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetSettlement {
    /// The booking.
    #[n(0)]
    pub id: BookingId,
    /// Bytes that left.
    #[n(1)]
    pub bytes: u64,
    /// What they cost; `None` if there is no price.
    #[n(2)]
    pub cost: Option<BudgetMoney>,
}

/// One step of the budgets.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum BudgetChange {
    /// A budget is set.
    #[n(0)]
    Set(#[n(0)] BudgetSet),
    /// Bytes are booked.
    #[n(1)]
    Book(#[n(0)] BudgetBooking),
    /// A booking ends.
    #[n(2)]
    Settle(#[n(0)] BudgetSettlement),
}

/// One record, the object `ledger/budget/<sequence>`; creating it makes its changes count.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetRecord {
    /// The repository, so that a record cannot pass for another's.
    #[n(0)]
    pub repository: RepositoryId,
    /// Number of the record, from 1 without gaps; equal to its object's name.
    #[n(1)]
    pub sequence: u64,
    /// BLAKE3 of the record before as stored; `None` for the first.
    #[n(2)]
    pub previous: Option<Digest>,
    /// Tells the writer whether a record under this number is its own.
    #[n(3)]
    pub nonce: Nonce,
    /// Who wrote it.
    #[n(4)]
    pub writer: String,
    /// Program and version that wrote it.
    #[n(5)]
    pub tool: String,
    /// The writer's clock; for people.
    #[n(6)]
    pub time: Timestamp,
    /// What changes, in this order; at least one.
    #[n(7)]
    pub changes: Vec<BudgetChange>,
}

impl BudgetRecord {
    /// The folder of the records.
    pub const FOLDER: &'static str = "ledger/budget";

    /// Name of the object of a record.
    #[must_use]
    pub fn path(sequence: u64) -> String {
        format!("{}/{sequence:020}", Self::FOLDER)
    }

    /// The object's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(&RECORD_MAGIC, self)
    }

    /// Reads record number `sequence` of `repository`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or if it is another repository's or another number's record.
    pub fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = RECORD;
        let record: Self = sealed::open(what, &RECORD_MAGIC, bytes, Limits::DEFAULT.log_record_bytes)?;
        if record.sequence != sequence || record.repository != repository {
            let (field, claimed) = ("sequence or repository", record.sequence);
            return Err(DecodeError::Contradiction { what, field, claimed, actual: sequence });
        }
        check_sequence(what, sequence)?;
        if record.previous.is_some() != (sequence > 1) {
            return Err(DecodeError::Field { what, field: "previous record", value: sequence });
        }
        check_time(what, record.time)?;
        if record.changes.is_empty() {
            return Err(DecodeError::Field { what, field: "number of changes", value: 0 });
        }
        record.changes.iter().try_for_each(|change| match change {
            BudgetChange::Set(set) => {
                check_names(what, &set.tenant, set.job.as_deref())?;
                check_limit(what, set.limit.as_ref())
            }
            BudgetChange::Book(booking) => check_booking(what, booking),
            BudgetChange::Settle(settlement) => settlement.cost.iter().try_for_each(|cost| check_money(what, cost)),
        })?;
        Ok(record)
    }
}

/// What has a price in one currency, `[bytes, cost]`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct BudgetPriced {
    /// Bytes.
    #[n(0)]
    pub bytes: u64,
    /// What they cost.
    #[n(1)]
    pub cost: BudgetMoney,
}

/// What was settled in one month.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetMonth {
    /// The month as the number `YYYYMM`.
    #[n(0)]
    pub month: u32,
    /// All bytes.
    #[n(1)]
    pub bytes: u64,
    /// What they cost where that is known, sorted by currency.
    #[n(2)]
    pub priced: Vec<BudgetPriced>,
}

/// An account of a tenant or job.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetAccount {
    /// Whose.
    #[n(0)]
    pub tenant: String,
    /// Of which job; `None` for the whole tenant.
    #[n(1)]
    pub job: Option<String>,
    /// How much in a calendar month; `None` for no limit.
    #[n(2)]
    pub limit: Option<BudgetAmount>,
    /// What was settled, by month.
    #[n(3)]
    pub months: Vec<BudgetMonth>,
}

/// A booking that is open.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetOpen {
    /// The booking.
    #[n(0)]
    pub booking: BudgetBooking,
    /// Accounts it counts in: 1 for the tenant's alone, 2 for its job's too.
    #[n(1)]
    pub accounts: u8,
}

/// The sum of all records up to one: the object `ledger/budget.state/<sequence>`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BudgetState {
    /// The repository.
    #[n(0)]
    pub repository: RepositoryId,
    /// Number of the last record it contains; 0 for none.
    #[n(1)]
    pub sequence: u64,
    /// BLAKE3 of that record as stored; `None` for none.
    #[n(2)]
    pub last: Option<Digest>,
    /// The accounts, sorted by tenant and job; a tenant stands before its jobs.
    #[n(3)]
    pub accounts: Vec<BudgetAccount>,
    /// The open bookings, sorted by name.
    #[n(4)]
    pub open: Vec<BudgetOpen>,
}

impl BudgetState {
    /// The folder of the states.
    pub const FOLDER: &'static str = "ledger/budget.state";

    /// The object's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(&STATE_MAGIC, self)
    }

    /// Reads the state after record `sequence` of `repository`.
    ///
    /// # Errors
    /// [`DecodeError`] for damage, or if it is another repository's or another number's state.
    pub fn decode(repository: RepositoryId, sequence: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = STATE;
        let state: Self = sealed::open(what, &STATE_MAGIC, bytes, Limits::DEFAULT.log_state_bytes)?;
        if state.sequence != sequence || state.repository != repository {
            let (field, claimed) = ("sequence or repository", state.sequence);
            return Err(DecodeError::Contradiction { what, field, claimed, actual: sequence });
        }
        check_last(sequence, state.last)?;
        check_order(state.accounts.iter().map(|account| (&account.tenant, &account.job)))?;
        state.accounts.iter().try_for_each(check_account)?;
        check_order(state.open.iter().map(|open| open.booking.id))?;
        for open in &state.open {
            check_booking(what, &open.booking)?;
            if !(1..=2).contains(&open.accounts) {
                return Err(DecodeError::Field { what, field: "number of accounts", value: open.accounts.into() });
            }
        }
        Ok(state)
    }
}

fn check_last(sequence: u64, last: Option<Digest>) -> Result<(), DecodeError> {
    let what = STATE;
    if last.is_some() != (sequence > 0) {
        return Err(DecodeError::Field { what, field: "last record", value: sequence });
    }
    if sequence == 0 { Ok(()) } else { check_sequence(what, sequence) }
}

fn check_account(account: &BudgetAccount) -> Result<(), DecodeError> {
    let what = STATE;
    check_names(what, &account.tenant, account.job.as_deref())?;
    check_limit(what, account.limit.as_ref())?;
    check_order(account.months.iter().map(|month| month.month))?;
    for month in &account.months {
        check_month(what, month.month)?;
        check_order(month.priced.iter().map(|priced| &priced.cost.currency))?;
        month.priced.iter().try_for_each(|priced| check_money(what, &priced.cost))?;
    }
    Ok(())
}

fn check_limit(what: &'static str, limit: Option<&BudgetAmount>) -> Result<(), DecodeError> {
    match limit {
        Some(BudgetAmount::Money(money)) => check_money(what, money),
        Some(BudgetAmount::Bytes(_)) | None => Ok(()),
    }
}

fn check_booking(what: &'static str, booking: &BudgetBooking) -> Result<(), DecodeError> {
    check_text(what, &booking.holder)?;
    check_names(what, &booking.tenant, Some(&booking.job))?;
    check_month(what, booking.month)?;
    booking.cost.iter().try_for_each(|cost| check_money(what, cost))
}

/// A tenant has a name without a slash, so that it cannot pass for a job of another tenant.
fn check_names(what: &'static str, tenant: &str, job: Option<&str>) -> Result<(), DecodeError> {
    if tenant.is_empty() || tenant.contains('/') {
        return Err(DecodeError::Field { what, field: "tenant", value: tenant.len() as u64 });
    }
    check_text(what, tenant)?;
    check_text(what, job.unwrap_or_default())
}

fn check_money(what: &'static str, money: &BudgetMoney) -> Result<(), DecodeError> {
    if money.currency.len() != 3 || !money.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(DecodeError::Field { what, field: "currency", value: money.currency.len() as u64 });
    }
    if money.whole > WHOLE_MAX || money.part >= PARTS {
        return Err(DecodeError::Field { what, field: "amount", value: money.whole });
    }
    Ok(())
}

fn check_order<T: PartialOrd>(items: impl Iterator<Item = T>) -> Result<(), DecodeError> {
    let mut last = None;
    for (index, item) in (0..).zip(items) {
        if last.is_some_and(|last| last >= item) {
            return Err(DecodeError::Order { what: STATE, index });
        }
        last = Some(item);
    }
    Ok(())
}

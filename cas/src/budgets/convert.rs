//! Between what is stored and what is reckoned with.

use forebay_format::{
    BudgetAccount, BudgetAmount, BudgetBooking, BudgetChange, BudgetMoney, BudgetMonth, BudgetOpen, BudgetPriced,
    BudgetSet, BudgetSettlement, DecodeError,
};
use forebay_policy::book::Priced;
use forebay_policy::{
    Booking, BookingId, Budget, BudgetBook, Change, Money, MoneyError, Month, OpenBooking, Scope, Tally, Used,
};

const FITS: &str = "the book takes no amount that cannot be stored";

pub(super) fn change_out(change: &Change) -> Result<BudgetChange, MoneyError> {
    Ok(match change {
        Change::Set { scope, limit } => BudgetChange::Set(BudgetSet {
            tenant: scope.tenant.clone(),
            job: scope.job.clone(),
            limit: limit.map(amount_out).transpose()?,
        }),
        Change::Book(booking) => BudgetChange::Book(booking_out(booking)?),
        Change::Settle { id, used } => BudgetChange::Settle(BudgetSettlement {
            id: forebay_format::BookingId::from_bytes(id.0),
            bytes: used.bytes,
            cost: used.cost.map(money_out).transpose()?,
        }),
    })
}

pub(super) fn change_in(change: &BudgetChange) -> Result<Change, DecodeError> {
    let what = "budget record";
    Ok(match change {
        BudgetChange::Set(set) => Change::Set {
            scope: Scope { tenant: set.tenant.clone(), job: set.job.clone() },
            limit: set.limit.as_ref().map(|limit| amount_in(what, limit)).transpose()?,
        },
        BudgetChange::Book(booking) => Change::Book(booking_in(what, booking)?),
        BudgetChange::Settle(settlement) => {
            let cost = settlement.cost.as_ref().map(|cost| money_in(what, cost)).transpose()?;
            let id = BookingId(*settlement.id.as_bytes());
            Change::Settle { id, used: Used { bytes: settlement.bytes, cost } }
        }
    })
}

pub(super) fn book_out(book: &BudgetBook) -> (Vec<BudgetAccount>, Vec<BudgetOpen>) {
    let accounts = book.accounts().map(|(scope, account)| BudgetAccount {
        tenant: scope.tenant.clone(),
        job: scope.job.clone(),
        limit: account.limit.map(|limit| amount_out(limit).expect(FITS)),
        months: account.settled().map(|(month, tally)| month_out(month, tally)).collect(),
    });
    let open = book.open().map(|open| BudgetOpen {
        booking: booking_out(&open.booking).expect(FITS),
        accounts: 1 + u8::from(open.counts_for_job),
    });
    (accounts.collect(), open.collect())
}

pub(super) fn book_in(accounts: &[BudgetAccount], open: &[BudgetOpen]) -> Result<BudgetBook, DecodeError> {
    let what = "budget state";
    let accounts = accounts.iter().map(|account| {
        let scope = Scope { tenant: account.tenant.clone(), job: account.job.clone() };
        let limit = account.limit.as_ref().map(|limit| amount_in(what, limit)).transpose()?;
        let months = account.months.iter().map(month_in).collect::<Result<Vec<_>, _>>()?;
        Ok((scope, limit, months))
    });
    let accounts: Vec<_> = accounts.collect::<Result<_, DecodeError>>()?;
    let open = open.iter().map(|open| {
        let booking = booking_in(what, &open.booking)?;
        Ok(OpenBooking { booking, counts_for_job: open.accounts == 2 })
    });
    let open: Vec<_> = open.collect::<Result<_, DecodeError>>()?;
    let number = open.len() as u64;
    BudgetBook::restore(accounts, open).map_err(|_error| DecodeError::Field { what, field: "sum", value: number })
}

fn month_out(month: Month, tally: &Tally) -> BudgetMonth {
    let priced = tally.priced().map(|part| BudgetPriced { bytes: part.bytes, cost: money_out(part.cost).expect(FITS) });
    BudgetMonth { month: month.number(), bytes: tally.bytes(), priced: priced.collect() }
}

fn month_in(stored: &BudgetMonth) -> Result<(Month, Tally), DecodeError> {
    let what = "budget state";
    let priced = stored.priced.iter().map(|part| Ok(Priced { bytes: part.bytes, cost: money_in(what, &part.cost)? }));
    let priced = priced.collect::<Result<Vec<_>, DecodeError>>()?;
    let tally = Tally::from_parts(stored.bytes, priced);
    let tally = tally.map_err(|_error| DecodeError::Field { what, field: "priced bytes", value: stored.bytes })?;
    Ok((number_in(what, stored.month)?, tally))
}

fn booking_out(booking: &Booking) -> Result<BudgetBooking, MoneyError> {
    Ok(BudgetBooking {
        id: forebay_format::BookingId::from_bytes(booking.id.0),
        holder: booking.holder.clone(),
        tenant: booking.tenant.clone(),
        job: booking.job.clone(),
        month: booking.month.number(),
        bytes: booking.bytes,
        cost: booking.cost.map(money_out).transpose()?,
    })
}

fn booking_in(what: &'static str, stored: &BudgetBooking) -> Result<Booking, DecodeError> {
    Ok(Booking {
        id: BookingId(*stored.id.as_bytes()),
        holder: stored.holder.clone(),
        tenant: stored.tenant.clone(),
        job: stored.job.clone(),
        month: number_in(what, stored.month)?,
        bytes: stored.bytes,
        cost: stored.cost.as_ref().map(|cost| money_in(what, cost)).transpose()?,
    })
}

fn amount_out(budget: Budget) -> Result<BudgetAmount, MoneyError> {
    Ok(match budget {
        Budget::Bytes(bytes) => BudgetAmount::Bytes(bytes),
        Budget::Money(money) => BudgetAmount::Money(money_out(money)?),
    })
}

fn amount_in(what: &'static str, stored: &BudgetAmount) -> Result<Budget, DecodeError> {
    Ok(match stored {
        BudgetAmount::Bytes(bytes) => Budget::Bytes(*bytes),
        BudgetAmount::Money(money) => Budget::Money(money_in(what, money)?),
    })
}

fn money_out(money: Money) -> Result<BudgetMoney, MoneyError> {
    let (whole, part) = money.to_parts()?;
    Ok(BudgetMoney { currency: money.currency.to_string(), whole, part })
}

fn money_in(what: &'static str, stored: &BudgetMoney) -> Result<Money, DecodeError> {
    let bad = |_error| DecodeError::Field { what, field: "amount", value: stored.whole };
    let currency = stored.currency.parse().map_err(bad)?;
    Money::from_parts(currency, stored.whole, stored.part).map_err(bad)
}

fn number_in(what: &'static str, number: u32) -> Result<Month, DecodeError> {
    Month::from_number(number).ok_or_else(|| DecodeError::Field { what, field: "month", value: number.into() })
}

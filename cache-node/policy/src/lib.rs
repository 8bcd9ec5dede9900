//! The decisions of a cache node as arithmetic: what is evicted, and what bytes cost.
//!
//! All of it is a pure function of its arguments. There is no clock (time is a counter), no randomness and no
//! float, so that the same trace gives the same decisions and the same sums on every machine.
//!
//! Types to know:
//!
//! * [`Class`] ranks what is cached by how much its loss would hurt.
//! * [`EvictionCore`] keeps the total order of what is cached and names the victims.
//! * [`Price`], [`Money`] and [`Budget`]: what bytes cost, in decimal; [`RateCard`] finds the price of a way.
//! * [`UsageTable`] counts what went where; [`Report`] sums it up and prices it.
//! * [`BudgetBook`] knows what every tenant may still send.
//!
//! Not here: where frames lie on disk and the deletion of victims (`forebay-cache-node`), link speeds
//! (`forebay-transfer-proto`, where *tier* means that), and any reading of files.
//!
//! ```
//! use forebay_policy::{Class, EvictionConfig, EvictionCore};
//!
//! let mut cache = EvictionCore::new(&EvictionConfig::with_capacity(100))?;
//! cache.admit("a", Class::Standard, 60)?;
//! cache.admit("b", Class::Prefetch, 40)?;
//! let victims = cache.admit("c", Class::Opportunistic, 30)?;
//! assert_eq!(victims.iter().map(|victim| victim.id).collect::<Vec<_>>(), ["b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod book;
pub mod calendar;
pub mod class;
pub mod eviction;
pub mod ledger;
pub mod money;
pub mod rates;
pub mod report;

pub use book::{
    Applied, BookError, Booking, BookingId, BudgetBook, Change, OpenBooking, Refusal, Scope, ScopeError, Standing,
    Tally, Used,
};
pub use calendar::{CalendarError, Day, Month};
pub use class::Class;
pub use eviction::{AdmitError, EvictionConfig, EvictionCore, Victim};
pub use ledger::{KeyField, Usage, UsageKey, UsageOverflow, UsageTable};
pub use money::{Budget, ByteUnit, Currency, Money, MoneyError, Price};
pub use rates::{Pattern, PatternError, Rate, RateCard, RateCardError, Route};
pub use report::{Column, Cost, Report, ReportError, Row, Summary};

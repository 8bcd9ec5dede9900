//! Usage of a month, summed up and priced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::ledger::ParseFieldError;
use crate::{Day, KeyField, Money, MoneyError, Price, RateCard, Route, Usage, UsageKey, UsageOverflow};

/// What the rows of a report are summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// A field of the key.
    Key(KeyField),
    /// The day, UTC.
    Day,
    /// The node that counted.
    Node,
}

impl Column {
    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key(field) => field.name(),
            Self::Day => "day",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Column {
    type Err = ParseColumnError;

    fn from_str(text: &str) -> Result<Self, ParseColumnError> {
        match text {
            "day" => Ok(Self::Day),
            "node" => Ok(Self::Node),
            _ => text.parse().map(Self::Key).map_err(|ParseFieldError { text }| ParseColumnError { text }),
        }
    }
}

/// A text that names no column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is nothing to sum up by: write tenant, job, dataset, class, tier, from, to, day or node")]
pub struct ParseColumnError {
    /// The text as given.
    pub text: String,
}

/// Sums usage up. Bytes are added before they are priced, so that prices per GiB are rounded once a row and rate.
///
/// Call [`Self::add`] for everything there is, then [`Self::finish`].
#[derive(Debug)]
pub struct Report<'c> {
    by: Vec<Column>,
    card: Option<&'c RateCard>,
    provider: Option<&'c str>,
    groups: BTreeMap<Vec<String>, Group>,
    unpriced: BTreeSet<(String, Day)>,
}

#[derive(Debug, Default)]
struct Group {
    usage: Usage,
    /// Sent and avoided bytes by the place of their rate in the card.
    priced: BTreeMap<usize, (u64, u64)>,
}

impl<'c> Report<'c> {
    /// An empty report; with a card every row gets its cost. The ledger does not know who sold the line: it is priced as
    /// `provider`'s.
    #[must_use]
    pub const fn new(by: Vec<Column>, card: Option<&'c RateCard>, provider: Option<&'c str>) -> Self {
        Self { by, card, provider, groups: BTreeMap::new(), unpriced: BTreeSet::new() }
    }

    /// Adds what one node counted on one day.
    ///
    /// # Errors
    /// [`UsageOverflow`] if a sum does not fit.
    pub fn add(&mut self, day: Day, node: &str, key: &UsageKey, usage: &Usage) -> Result<(), UsageOverflow> {
        let group = self.by.iter().map(|column| match column {
            Column::Key(field) => key.get(*field).to_owned(),
            Column::Day => day.to_string(),
            Column::Node => node.to_owned(),
        });
        let group = self.groups.entry(group.collect()).or_default();
        group.usage = group.usage.checked_add(*usage)?;
        let Some(card) = self.card else { return Ok(()) };
        if usage.sent_bytes == 0 && usage.avoided_bytes == 0 {
            return Ok(());
        }
        let route = Route { provider: self.provider, from: &key.from, to: &key.to, tier: &key.tier };
        match card.find(&route, day) {
            None => {
                self.unpriced.insert((route.to_string(), day));
            }
            // The sums are parts of those above, which fit.
            Some(rate) => {
                let bytes = group.priced.entry(rate).or_default();
                bytes.0 += usage.sent_bytes;
                bytes.1 += usage.avoided_bytes;
            }
        }
        Ok(())
    }

    /// The rows in order, and their sum.
    ///
    /// # Errors
    /// [`ReportError::NoPrice`] if the card does not say what some way costs: a way is never free by omission.
    pub fn finish(self) -> Result<Summary, ReportError> {
        if let Some((way, day)) = self.unpriced.first() {
            let mut ways: Vec<&String> = self.unpriced.iter().map(|(way, _)| way).collect();
            ways.dedup();
            return Err(ReportError::NoPrice { way: way.clone(), day: *day, more: ways.len() - 1 });
        }
        let mut total = Row { group: Vec::new(), usage: Usage::default(), cost: self.card.map(Cost::nothing) };
        let mut rows = Vec::with_capacity(self.groups.len());
        for (names, group) in self.groups {
            let cost = self.card.map(|card| Cost::of(card, &group.priced)).transpose()?;
            total.usage = total.usage.checked_add(group.usage)?;
            if let (Some(sum), Some(cost)) = (&mut total.cost, &cost) {
                sum.sent = sum.sent.checked_add(cost.sent)?;
                sum.avoided = sum.avoided.checked_add(cost.avoided)?;
            }
            rows.push(Row { group: names, usage: group.usage, cost });
        }
        Ok(Summary { by: self.by, rows, total })
    }
}

/// A finished report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// What the rows are summed up by.
    pub by: Vec<Column>,
    /// The rows, ordered by their group.
    pub rows: Vec<Row>,
    /// The sum of all rows; its group is empty.
    pub total: Row,
}

/// One row of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The values of the columns.
    pub group: Vec<String>,
    /// The counters.
    pub usage: Usage,
    /// What it cost, with a rate card.
    pub cost: Option<Cost>,
}

/// What a row cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Of the bytes sent.
    pub sent: Money,
    /// What the avoided bytes would have cost.
    pub avoided: Money,
    /// The prices in it, each once; none in a total.
    pub prices: Vec<Price>,
}

impl Cost {
    const fn nothing(card: &RateCard) -> Self {
        let zero = Money::zero(card.currency());
        Self { sent: zero, avoided: zero, prices: Vec::new() }
    }

    fn of(card: &RateCard, bytes: &BTreeMap<usize, (u64, u64)>) -> Result<Self, MoneyError> {
        let mut sum = Self::nothing(card);
        for (rate, (sent, avoided)) in bytes {
            let price = card.rates()[*rate].price;
            sum.sent = sum.sent.checked_add(price.cost(*sent)?)?;
            sum.avoided = sum.avoided.checked_add(price.cost(*avoided)?)?;
            if !sum.prices.contains(&price) {
                sum.prices.push(price);
            }
        }
        Ok(sum)
    }
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The card does not say what a way costs.
    #[error(
        "the rate card has no price for {way} on {day}{}: add a route for it, with price 0 if it is free",
        others(*.more)
    )]
    NoPrice {
        /// The way.
        way: String,
        /// The first day on which it was used and has no price.
        day: Day,
        /// Further ways without a price.
        more: usize,
    },
    /// A counter does not fit.
    #[error(transparent)]
    Usage(#[from] UsageOverflow),
    /// A cost cannot be kept exactly.
    #[error(transparent)]
    Money(#[from] MoneyError),
}

fn others(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", nor for {more} more") }
}

#[cfg(test)]
mod tests;

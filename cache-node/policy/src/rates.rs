//! The rate card: what a byte costs on which way, and from when to when.
//!
//! A [`Rate`] has a pattern for each part of a way. Of the rates that fit, the one counts that fits nothing but what all
//! the others fit too: the most specific one. [`RateCard::new`] proves that there is one for every way on every day, so
//! that a price never depends on the order of the card.

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

use crate::{Currency, Day, Price};

mod pattern;

pub use self::pattern::{Pattern, PatternError};

/// Rates of a card; more cannot be checked against each other in reasonable time.
pub const RATES_MAX: usize = 4096;

/// The way that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'r> {
    /// Who sells the line, where it is known.
    pub provider: Option<&'r str>,
    /// Place the bytes leave.
    pub from: &'r str,
    /// Place they go to.
    pub to: &'r str,
    /// Link tier.
    pub tier: &'r str,
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.from, self.to)?;
        if !self.tier.is_empty() {
            write!(f, " on tier {}", self.tier)?;
        }
        self.provider.map_or(Ok(()), |provider| write!(f, " by {provider}"))
    }
}

/// One line of a rate card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Who sells the line. [`Pattern::ANY`] fits unknown providers too, everything else does not.
    pub provider: Pattern,
    /// Place the bytes leave.
    pub from: Pattern,
    /// Place they go to.
    pub to: Pattern,
    /// Link tier.
    pub tier: Pattern,
    /// What a GB or GiB costs.
    pub price: Price,
    /// The first day it holds; from ever if left out.
    pub first_day: Option<Day>,
    /// The last day it holds; for ever if left out.
    pub last_day: Option<Day>,
}

impl Rate {
    fn patterns(&self) -> [&Pattern; 4] {
        [&self.provider, &self.from, &self.to, &self.tier]
    }

    fn days(&self) -> (Day, Day) {
        (self.first_day.unwrap_or(Day::MIN), self.last_day.unwrap_or(Day::MAX))
    }

    fn holds_on(&self, day: Day) -> bool {
        let (first, last) = self.days();
        (first..=last).contains(&day)
    }

    fn fits(&self, route: &Route<'_>) -> bool {
        let provider = route.provider.map_or(self.provider == Pattern::ANY, |provider| self.provider.fits(provider));
        provider && self.from.fits(route.from) && self.to.fits(route.to) && self.tier.fits(route.tier)
    }

    /// How two rates stand to each other: `Less` is the more specific one; `None` if each fits ways the other does not.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        let pairs = self.patterns().into_iter().zip(other.patterns());
        let mut all = Ordering::Equal;
        for (one, two) in pairs {
            all = match (all, one.compare(two)?) {
                (so_far, Ordering::Equal) => so_far,
                (Ordering::Equal, next) => next,
                (so_far, next) if so_far == next => so_far,
                _ => return None,
            };
        }
        Some(all)
    }

    /// The patterns that fit exactly what both fit; `None` if no way fits both.
    fn meet<'r>(&'r self, other: &'r Self) -> Option<[&'r Pattern; 4]> {
        let mut both = self.patterns();
        for (one, two) in both.iter_mut().zip(other.patterns()) {
            match (*one).compare(two)? {
                Ordering::Greater => *one = two,
                Ordering::Less | Ordering::Equal => {}
            }
        }
        Some(both)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.from, self.to)?;
        if self.tier != Pattern::ANY {
            write!(f, " on tier {}", self.tier)?;
        }
        if self.provider != Pattern::ANY {
            write!(f, " by {}", self.provider)?;
        }
        match (self.first_day, self.last_day) {
            (None, None) => Ok(()),
            (Some(first), None) => write!(f, " from {first}"),
            (None, Some(last)) => write!(f, " until {last}"),
            (Some(first), Some(last)) => write!(f, " from {first} until {last}"),
        }
    }
}

/// Rates that have been checked against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateCard {
    version: String,
    rates: Vec<Rate>,
    currency: Currency,
}

impl RateCard {
    /// Checks the rates.
    ///
    /// # Errors
    /// [`RateCardError`] names the entries, counted from 1.
    pub fn new(version: String, rates: Vec<Rate>) -> Result<Self, RateCardError> {
        let Some(first) = rates.first() else { return Err(RateCardError::Empty) };
        if rates.len() > RATES_MAX {
            return Err(RateCardError::TooMany { rates: rates.len() });
        }
        let currency = first.price.per_unit().currency;
        for (number, rate) in (1..).zip(&rates) {
            let found = rate.price.per_unit().currency;
            if found != currency {
                return Err(RateCardError::Currencies { entry: Entry::new(number, rate), found, expected: currency });
            }
            if let (Some(first), Some(last)) = (rate.first_day, rate.last_day)
                && first > last
            {
                return Err(RateCardError::Days { entry: Entry::new(number, rate) });
            }
        }
        check_pairs(&rates)?;
        Ok(Self { version, rates, currency })
    }

    /// What a byte on this way costs on this day; `None` if the card does not say.
    #[must_use]
    pub fn price(&self, route: &Route<'_>, day: Day) -> Option<Price> {
        self.find(route, day).map(|index| self.rates[index].price)
    }

    /// The place in [`Self::rates`] of the rate that counts.
    #[must_use]
    pub fn find(&self, route: &Route<'_>, day: Day) -> Option<usize> {
        let fitting = (0..self.rates.len()).filter(|&index| {
            let rate = &self.rates[index];
            rate.holds_on(day) && rate.fits(route)
        });
        // The check of the card has proven that one of them is more specific than all the others.
        fitting.reduce(|best, next| match self.rates[next].compare(&self.rates[best]) {
            Some(Ordering::Less) => next,
            _ => best,
        })
    }

    /// What the card calls itself.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The one currency of all its prices.
    #[must_use]
    pub const fn currency(&self) -> Currency {
        self.currency
    }

    /// Its rates in their order.
    #[must_use]
    pub fn rates(&self) -> &[Rate] {
        &self.rates
    }
}

/// An entry of a card, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number, from 1.
    pub number: usize,
    /// What it says.
    pub text: String,
}

impl Entry {
    fn new(number: usize, rate: &Rate) -> Self {
        Self { number, text: rate.to_string() }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {} ({})", self.number, self.text)
    }
}

/// Why rates are no card.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateCardError {
    /// No rates at all.
    #[error("the rate card has no routes: add at least one")]
    Empty,
    /// More than can be checked.
    #[error("the rate card has {rates} routes, more than {RATES_MAX}: use patterns such as site:*")]
    TooMany {
        /// Rates there are.
        rates: usize,
    },
    /// A second currency.
    #[error("{entry} is in {found}, the entries before it in {expected}: a card has one currency")]
    Currencies {
        /// The entry.
        entry: Entry,
        /// Its currency.
        found: Currency,
        /// The currency of the first entry.
        expected: Currency,
    },
    /// A rate that ends before it begins.
    #[error("{entry} ends before it begins: last_day must not be before first_day")]
    Days {
        /// The entry.
        entry: Entry,
    },
    /// The same way twice on the same day.
    #[error(
        "{one} and {two} are for the same way and both hold on {day}: let the first end with last_day the day before \
         the second begins"
    )]
    Overlap {
        /// The earlier entry in the card.
        one: Entry,
        /// The later one.
        two: Entry,
        /// The first day on which both hold.
        day: Day,
    },
    /// Two rates fit one way and neither is more specific.
    #[error("{one} and {two} both fit {way} on {day} and neither is more specific: add a route for exactly {way}")]
    Tie {
        /// The earlier entry in the card.
        one: Entry,
        /// The later one.
        two: Entry,
        /// What both fit.
        way: String,
        /// The first day on which nothing decides.
        day: Day,
    },
}

/// Whether of any two rates that fit one way on one day one is more specific, or a third that fits just what both fit.
///
/// Then the rates that fit a way are closed under "what both fit", and the last of these is more specific than all.
fn check_pairs(rates: &[Rate]) -> Result<(), RateCardError> {
    for (index, one) in rates.iter().enumerate() {
        for (other, two) in rates.iter().enumerate().skip(index + 1) {
            let (first, last) = (one.days().0.max(two.days().0), one.days().1.min(two.days().1));
            let Some(meet) = one.meet(two).filter(|_| first <= last) else { continue };
            let entries = || [Entry::new(index + 1, one), Entry::new(other + 1, two)];
            match one.compare(two) {
                Some(Ordering::Less | Ordering::Greater) => {}
                Some(Ordering::Equal) => {
                    let [one, two] = entries();
                    return Err(RateCardError::Overlap { one, two, day: first });
                }
                None => {
                    let deciding = rates.iter().filter(|rate| rate.patterns() == meet);
                    if let Some(day) = first_day_without(deciding, first, last) {
                        let [one, two] = entries();
                        return Err(RateCardError::Tie { one, two, way: way(meet), day });
                    }
                }
            }
        }
    }
    Ok(())
}

/// The first day from `first` to `last` on which none of the rates holds.
fn first_day_without<'r>(rates: impl Iterator<Item = &'r Rate>, first: Day, last: Day) -> Option<Day> {
    let mut days: Vec<(Day, Day)> = rates.map(Rate::days).collect();
    days.sort_unstable();
    let mut open = first;
    for (from, until) in days {
        if from > open {
            break;
        }
        if until >= open {
            match until.next() {
                Some(next) => open = next,
                None => return None,
            }
        }
    }
    (open <= last).then_some(open)
}

fn way([provider, from, to, tier]: [&Pattern; 4]) -> String {
    let mut text = format!("{from} → {to}");
    if *tier != Pattern::ANY {
        text.push_str(&format!(" on tier {tier}"));
    }
    if *provider != Pattern::ANY {
        text.push_str(&format!(" by {provider}"));
    }
    text
}

#[cfg(test)]
mod tests;

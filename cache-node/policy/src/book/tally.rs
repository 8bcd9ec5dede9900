//! Sums of bytes and of what they cost.

use std::collections::BTreeMap;

use crate::{Budget, Currency, Money, MoneyError};

/// Bytes, and what the priced ones of them cost in each currency. Sums that are nothing are not kept, so that equal sums
/// are equal however they came about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    bytes: u64,
    priced: BTreeMap<Currency, Priced>,
}

/// The part of a tally that has a price in one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priced {
    /// Bytes.
    pub bytes: u64,
    /// What they cost.
    pub cost: Money,
}

impl Tally {
    /// A tally from what [`Self::bytes`] and [`Self::priced`] gave.
    ///
    /// # Errors
    /// [`MoneyError`] if the parts are more than the whole.
    pub fn from_parts(bytes: u64, priced: impl IntoIterator<Item = Priced>) -> Result<Self, MoneyError> {
        let mut tally = Self::default();
        for part in priced {
            tally.add(part.bytes, Some(part.cost))?;
        }
        if tally.bytes > bytes {
            return Err(MoneyError::Overflow);
        }
        tally.bytes = bytes;
        Ok(tally)
    }

    /// Adds bytes and their cost. On failure it may be changed in part.
    pub(super) fn add(&mut self, bytes: u64, cost: Option<Money>) -> Result<(), MoneyError> {
        self.bytes = self.bytes.checked_add(bytes).ok_or(MoneyError::Overflow)?;
        if let Some(cost) = cost {
            let nothing = Priced { bytes: 0, cost: Money::zero(cost.currency) };
            let priced = self.priced.entry(cost.currency).or_insert(nothing);
            // Part of the sum above, which fits.
            priced.bytes += bytes;
            priced.cost = priced.cost.checked_add(cost)?;
            // A sum that no format can keep must not come about.
            priced.cost.to_parts()?;
            self.drop_nothing(cost.currency);
        }
        Ok(())
    }

    /// Takes away what was added before. On failure it may be changed in part.
    pub(super) fn remove(&mut self, bytes: u64, cost: Option<Money>) -> Result<(), MoneyError> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(MoneyError::Overflow)?;
        if let Some(cost) = cost {
            let Some(priced) = self.priced.get_mut(&cost.currency) else {
                let was_nothing = bytes == 0 && cost.amount.is_zero();
                return if was_nothing { Ok(()) } else { Err(MoneyError::Overflow) };
            };
            priced.bytes = priced.bytes.checked_sub(bytes).ok_or(MoneyError::Overflow)?;
            priced.cost = priced.cost.checked_sub(cost)?;
            self.drop_nothing(cost.currency);
        }
        Ok(())
    }

    /// The sum of both.
    ///
    /// # Errors
    /// [`MoneyError`] if it does not fit.
    pub fn plus(&self, other: &Self) -> Result<Self, MoneyError> {
        let mut sum = self.clone();
        let unpriced = other.priced.values().try_fold(other.bytes, |rest, part| rest.checked_sub(part.bytes));
        sum.add(unpriced.ok_or(MoneyError::Overflow)?, None)?;
        other.priced.values().try_for_each(|part| sum.add(part.bytes, Some(part.cost)))?;
        Ok(sum)
    }

    /// All bytes, priced or not.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What has a price, by currency.
    pub fn priced(&self) -> impl Iterator<Item = &Priced> {
        self.priced.values()
    }

    /// Bytes with a price in this currency.
    #[must_use]
    pub fn priced_bytes(&self, currency: Currency) -> u64 {
        self.priced.get(&currency).map_or(0, |priced| priced.bytes)
    }

    /// What the bytes with a price in this currency cost.
    #[must_use]
    pub fn cost(&self, currency: Currency) -> Money {
        self.priced.get(&currency).map_or_else(|| Money::zero(currency), |priced| priced.cost)
    }

    /// The bytes for a limit in bytes, the cost in its currency for a limit in money.
    #[must_use]
    pub fn in_terms_of(&self, limit: &Budget) -> Budget {
        match limit {
            Budget::Bytes(_) => Budget::Bytes(self.bytes),
            Budget::Money(limit) => Budget::Money(self.cost(limit.currency)),
        }
    }

    /// Whether it is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.priced.is_empty()
    }

    fn drop_nothing(&mut self, currency: Currency) {
        if self.priced.get(&currency).is_some_and(|part| part.bytes == 0 && part.cost.amount.is_zero()) {
            self.priced.remove(&currency);
        }
    }
}

//! What bytes cost, in decimal.
//!
//! A price always has a currency and a unit of bytes: GB is 10^9, GiB is 2^30, and neither is a default. No
//! step goes through a float.

use std::fmt::{self, Write};
use std::str::FromStr;

use rust_decimal::Decimal;
use thiserror::Error;

mod budget;

pub use budget::Budget;

/// Decimals kept in an amount.
const SCALE: u32 = 18;

/// The smallest steps in a whole unit, 10^18.
const ONE: u128 = 10_u128.pow(SCALE);

/// Decimals accepted in a price: 10^-9 per GB is below what any provider asks.
const PRICE_SCALE_MAX: u32 = 9;

/// A currency by its code of three capital letters (ISO 4217), for example `USD`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&letter| f.write_char(char::from(letter)))
    }
}

impl FromStr for Currency {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            // `GIB` is a unit of bytes in the wrong case, not a currency.
            Ok(code) if code.iter().all(u8::is_ascii_uppercase) && !code.ends_with(b"IB") => Ok(Self(code)),
            Ok(_) | Err(_) => Err(MoneyError::Currency { text: text.to_owned() }),
        }
    }
}

/// An amount of money with up to 18 decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money {
    /// How much, without trailing zeros.
    pub amount: Decimal,
    /// Of what.
    pub currency: Currency,
}

impl Money {
    /// Nothing, in this currency.
    pub const fn zero(currency: Currency) -> Self {
        Self { amount: Decimal::ZERO, currency }
    }

    /// The exact sum of both.
    ///
    /// # Errors
    /// [`MoneyError::CurrencyMix`] for two currencies; [`MoneyError::Overflow`] for a sum with more digits
    /// than the 28 or 29 that a decimal of 96 bits holds.
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::CurrencyMix { left: self.currency, right: other.currency });
        }
        let (left, right) = (self.amount.normalize(), other.amount.normalize());
        let sum = left.checked_add(right).ok_or(MoneyError::Overflow)?;
        // The decimal would rather drop digits than refuse: then the sum has fewer decimals than its parts.
        if sum.scale() < left.scale().max(right.scale()) {
            return Err(MoneyError::Overflow);
        }
        Ok(Self { amount: sum.normalize(), ..self })
    }

    /// What is left of this when the other is taken away; both have the same currency.
    ///
    /// # Errors
    /// As [`Self::checked_add`]; [`MoneyError::Overflow`] also if less than nothing would be left.
    pub fn checked_sub(self, other: Self) -> Result<Self, MoneyError> {
        if other.amount > self.amount && self.currency == other.currency {
            return Err(MoneyError::Overflow);
        }
        self.checked_add(Self { amount: -other.amount, ..other })
    }

    /// The whole units and the rest in units of 10^-18, as formats keep it.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`] if it is negative or above some 79 thousand million.
    pub fn to_parts(self) -> Result<(u64, u64), MoneyError> {
        let mut amount = self.amount.normalize();
        if amount.scale() > SCALE {
            return Err(MoneyError::Overflow);
        }
        amount.rescale(SCALE);
        let steps = u128::try_from(amount.mantissa()).ok().filter(|_| amount.scale() == SCALE);
        let parts = steps.map(|steps| (u64::try_from(steps / ONE), u64::try_from(steps % ONE)));
        match parts {
            Some((Ok(whole), Ok(part))) => Ok((whole, part)),
            _ => Err(MoneyError::Overflow),
        }
    }

    /// An amount from whole units and units of 10^-18.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`] if it is above some 79 thousand million, or the part is a whole unit or more.
    pub fn from_parts(currency: Currency, whole: u64, part: u64) -> Result<Self, MoneyError> {
        if u128::from(part) >= ONE {
            return Err(MoneyError::Overflow);
        }
        let steps = i128::try_from(u128::from(whole) * ONE + u128::from(part)).or(Err(MoneyError::Overflow))?;
        let amount = Decimal::try_from_i128_with_scale(steps, SCALE).or(Err(MoneyError::Overflow))?;
        Ok(Self { amount: amount.normalize(), currency })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.currency)
    }
}

/// The unit of bytes of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ByteUnit {
    /// 10^9 bytes.
    Gb,
    /// 2^30 bytes.
    Gib,
}

impl ByteUnit {
    /// Bytes in one unit.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Gb => 1_000_000_000,
            Self::Gib => 1 << 30,
        }
    }
}

impl fmt::Display for ByteUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gb => "GB",
            Self::Gib => "GiB",
        })
    }
}

/// A price per GB or GiB, written `0.09 USD/GB`: at most 9 decimals, currency and unit required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    per_unit: Money,
    unit: ByteUnit,
}

impl Price {
    /// What `bytes` cost: exact for a price per GB; for one per GiB rounded to the nearest 10^-18, to the
    /// even one of two. Costs of many small amounts per GiB are exact to that only if the bytes are added
    /// first.
    ///
    /// # Errors
    /// [`MoneyError::Overflow`] above some 79 thousand million of the currency.
    pub fn cost(&self, bytes: u64) -> Result<Money, MoneyError> {
        let amount = self.per_unit.amount;
        let unit = u128::from(self.unit.bytes());
        let product = amount.mantissa().unsigned_abs().checked_mul(u128::from(bytes)).ok_or(MoneyError::Overflow)?;
        // product / unit, in units of 10^-SCALE: whole units first, so that no step needs more than 128 bits.
        let step = 10_u128.pow(SCALE - amount.scale());
        let whole = (product / unit).checked_mul(step).ok_or(MoneyError::Overflow)?;
        let part = divide_half_even(product % unit * step, unit);
        let mantissa = whole.checked_add(part).and_then(|sum| i128::try_from(sum).ok()).ok_or(MoneyError::Overflow)?;
        let cost = Decimal::try_from_i128_with_scale(mantissa, SCALE).or(Err(MoneyError::Overflow))?;
        Ok(Money { amount: cost.normalize(), ..self.per_unit })
    }

    /// The price of one unit.
    pub const fn per_unit(&self) -> Money {
        self.per_unit
    }

    /// The unit it is for.
    pub const fn unit(&self) -> ByteUnit {
        self.unit
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.per_unit, self.unit)
    }
}

impl FromStr for Price {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let (money, unit) = text.split_once('/').ok_or_else(|| MoneyError::UnitMissing { text: text.to_owned() })?;
        let unit = match unit.trim() {
            "GB" => ByteUnit::Gb,
            "GiB" => ByteUnit::Gib,
            other => return Err(MoneyError::PriceUnit { text: other.to_owned() }),
        };
        let (amount, currency) = parse_amount(money)?;
        if amount.scale() > PRICE_SCALE_MAX {
            return Err(MoneyError::Number { text: money.trim().to_owned() });
        }
        Ok(Self { per_unit: Money { amount, currency: currency.parse()? }, unit })
    }
}

/// Why a text is no money, or a sum cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MoneyError {
    /// Not a plain decimal number, negative, or with too many digits.
    #[error("{text:?} is not a number that can be kept exactly: write digits and at most one point")]
    Number {
        /// The text as given.
        text: String,
    },
    /// Not a currency.
    #[error("{text:?} is no currency: write three capital letters, for example USD")]
    Currency {
        /// The text as given.
        text: String,
    },
    /// A price without a unit of bytes.
    #[error("the price {text:?} has no unit: write for example 0.09 USD/GB or 0.09 USD/GiB")]
    UnitMissing {
        /// The text as given.
        text: String,
    },
    /// A price for another unit than GB or GiB.
    #[error("{text:?} is no unit of a price: write GB (10^9 bytes) or GiB (2^30 bytes)")]
    PriceUnit {
        /// The text as given.
        text: String,
    },
    /// A budget that is neither bytes nor money.
    #[error("{text:?} is no budget: write bytes with a unit, as 100GB, or money with a currency, as 25USD")]
    Budget {
        /// The text as given.
        text: String,
    },
    /// A number of bytes with a fraction, or above 2^64.
    #[error("{text:?} is not a whole number of bytes below 2^64")]
    Bytes {
        /// The text as given.
        text: String,
    },
    /// Two currencies in one sum; there is no rate between them here.
    #[error("{left} and {right} cannot be added")]
    CurrencyMix {
        /// Currency of the first amount.
        left: Currency,
        /// Currency of the second.
        right: Currency,
    },
    /// More digits than an amount can keep exactly.
    #[error("the amount is too large to be kept exactly")]
    Overflow,
}

/// Splits `25 USD` into the number and the word behind it, which may be empty.
fn parse_amount(text: &str) -> Result<(Decimal, &str), MoneyError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, word) = text.split_at(end);
    let plain = number.starts_with(|c: char| c.is_ascii_digit()) && !number.ends_with('.');
    let decimal = Some(number).filter(|_| plain).and_then(|number| Decimal::from_str_exact(number).ok());
    let decimal = decimal.map(|decimal| decimal.normalize()).filter(|decimal| decimal.scale() <= SCALE);
    let decimal = decimal.ok_or_else(|| MoneyError::Number { text: text.to_owned() })?;
    Ok((decimal, word.trim_start()))
}

/// `value / divisor`, to the nearest, and to the even one of two.
const fn divide_half_even(value: u128, divisor: u128) -> u128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    let up = rest * 2 > divisor || (rest * 2 == divisor && quotient % 2 == 1);
    quotient + up as u128
}

#[cfg(test)]
mod tests;

//! The amount of a budget: bytes or money.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;

use super::{Money, MoneyError, parse_amount};

/// The limit of a budget, written as bytes with a unit (`100GB`, `1.5TiB`) or as money (`25USD`).
///
/// A number alone is refused: it could be either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// So many bytes on the wire.
    Bytes(u64),
    /// So much money at the prices of the rate card.
    Money(Money),
}

impl fmt::Display for Budget {
    /// Bytes in the largest unit that keeps them whole, those of ten before those of two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => {
                let whole = UNITS.iter().rev().find(|(_, unit)| *bytes >= *unit && bytes % unit == 0);
                let (name, unit) = whole.unwrap_or(&UNITS[0]);
                write!(f, "{}{name}", bytes / unit)
            }
            Self::Money(money) => write!(f, "{}{}", money.amount, money.currency),
        }
    }
}

impl FromStr for Budget {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let (amount, word) = parse_amount(text)?;
        if let Some((_, unit)) = UNITS.into_iter().find(|(name, _)| *name == word) {
            let bytes = amount.checked_mul(Decimal::from(unit)).filter(Decimal::is_integer);
            let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
            return bytes.map(Self::Bytes).ok_or_else(|| MoneyError::Bytes { text: text.to_owned() });
        }
        let Ok(currency) = word.parse() else {
            return Err(MoneyError::Budget { text: text.to_owned() });
        };
        Ok(Self::Money(Money { amount, currency }))
    }
}

/// Units of bytes. Those of ten stand last, where the display looks first.
const UNITS: [(&str, u64); 11] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

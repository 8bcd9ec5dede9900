//! Capacity and what each class gets of it.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::class::Class;

/// A part of the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// So many thousandths of the capacity, at most 1,000, rounded down to a byte.
    PerMille(u16),
}

impl Share {
    fn bytes_of(self, capacity_bytes: u64) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::PerMille(part @ 0..=1_000) => {
                u64::try_from(u128::from(capacity_bytes) * u128::from(part) / 1_000).ok()
            }
            Self::PerMille(_) => None,
        }
    }
}

/// Settings of an [`EvictionCore`](super::EvictionCore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionConfig {
    /// The most bytes that all entries together may have.
    pub capacity_bytes: u64,
    /// What is kept for a class; 0 for those not named.
    pub floors: BTreeMap<Class, Share>,
    /// The most a class may have; the whole capacity for those not named.
    pub caps: BTreeMap<Class, Share>,
}

impl EvictionConfig {
    /// A capacity without floors and caps: classes differ by their order alone.
    pub const fn with_capacity(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, floors: BTreeMap::new(), caps: BTreeMap::new() }
    }

    pub(super) fn bounds(&self) -> Result<[Bounds; 6], ConfigError> {
        let mut bounds = [Bounds { floor_bytes: 0, cap_bytes: self.capacity_bytes }; 6];
        let mut floors_bytes = 0_u64;
        for (class, bounds) in Class::ALL.into_iter().zip(&mut bounds) {
            let resolve = |share: &Share| share.bytes_of(self.capacity_bytes).ok_or(ConfigError::Fraction { class });
            bounds.floor_bytes = self.floors.get(&class).map_or(Ok(0), resolve)?;
            let cap_bytes = self.caps.get(&class).map_or(Ok(self.capacity_bytes), resolve)?;
            bounds.cap_bytes = cap_bytes.min(self.capacity_bytes);
            if bounds.floor_bytes > bounds.cap_bytes {
                let Bounds { floor_bytes, cap_bytes } = *bounds;
                return Err(ConfigError::FloorAboveCap { class, floor_bytes, cap_bytes });
            }
            floors_bytes = floors_bytes.saturating_add(bounds.floor_bytes);
        }
        if floors_bytes > self.capacity_bytes {
            return Err(ConfigError::Floors { floors_bytes, capacity_bytes: self.capacity_bytes });
        }
        Ok(bounds)
    }
}

/// Floor and cap of one class, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) floor_bytes: u64,
    pub(super) cap_bytes: u64,
}

/// Why shares make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// More than 1,000 thousandths.
    #[error("a share of class {class} is above 1000 thousandths of the capacity")]
    Fraction {
        /// Whose share.
        class: Class,
    },
    /// More is kept for a class than it may have.
    #[error("the floor of class {class}, {floor_bytes} bytes, is above its cap of {cap_bytes}")]
    FloorAboveCap {
        /// Which class.
        class: Class,
        /// Its floor.
        floor_bytes: u64,
        /// Its cap, or the capacity if that is less.
        cap_bytes: u64,
    },
    /// More is kept for all classes than there is.
    #[error("the floors add up to {floors_bytes} bytes, above the capacity of {capacity_bytes}")]
    Floors {
        /// Sum of all floors.
        floors_bytes: u64,
        /// The capacity.
        capacity_bytes: u64,
    },
}

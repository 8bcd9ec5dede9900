//! Points in time as stored: seconds and nanoseconds since 1970, also before it.

use minicbor::{Decode, Encode};

/// Nanoseconds in a second.
const NANOS_PER_S: u32 = 1_000_000_000;

/// A point in time, `[seconds since 1970-01-01T00:00:00Z, nanoseconds 0..10^9]`; the nanoseconds always count forward,
/// so half a second before 1970 is `[-1, 500000000]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Timestamp {
    /// Whole seconds, rounded towards the past.
    #[n(0)]
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    #[n(1)]
    pub nanos: u32,
}

impl Timestamp {
    /// A time from whole seconds and nanoseconds; `None` if the nanoseconds are a second or more.
    #[must_use]
    pub const fn new(seconds: i64, nanos: u32) -> Option<Self> {
        if nanos < NANOS_PER_S { Some(Self { seconds, nanos }) } else { None }
    }

    /// Whether the nanoseconds are below a second, as every decoded time must be.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.nanos < NANOS_PER_S
    }

    /// Nanoseconds since 1970; exact for every valid time.
    #[must_use]
    pub fn as_nanos(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS_PER_S) + i128::from(self.nanos)
    }
}

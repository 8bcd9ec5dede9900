//! Link tiers, and what follows from one for a path: rates, connections, windows, read-ahead.
//!
//! A tier is a promise about a link (what it may carry and what it costs); it is not a cache class. The
//! numbers for one path come from bandwidth times delay, and end at what the memory budget allows.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Plain bytes of one run: the unit of a request, of a stream and of stealing work. 1 MiB.
///
/// One ordered stream may hold at most 1,024 gaps before quinn-proto 0.11 closes the connection; a run of
/// 1 MiB in packets of 1,452 bytes cannot have more than 723.
pub const RUN_BYTES: u64 = 1 << 20;

/// Most runs in flight on one connection. Measured with 100 ms of delay, 0.1 % loss and 1 Gbit/s: 64 runs of
/// 1 MiB, one stream each, moved 0.102 GB/s; no other setting tried was faster, or survived as well.
pub const RUNS_IN_FLIGHT_MAX: u32 = 64;

/// Fewest runs in flight on one connection where memory allows: windows of 16 MiB were the best of a local
/// network, whatever its delay.
const RUNS_IN_FLIGHT_LAN: u32 = 16;

/// A reader gets ahead by one delay and this much time of the tier's rate, so that it does not wait for the
/// disk or the codec of the other side either. A first value, not tuned yet.
const READ_AHEAD_SLACK: Duration = Duration::from_millis(50);

/// A rate in bytes per second, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateBytesPerS(NonZeroU64);

impl RateBytesPerS {
    /// A rate of `bytes_per_s`; `None` for 0, which would never send anything.
    pub const fn new(bytes_per_s: u64) -> Option<Self> {
        match NonZeroU64::new(bytes_per_s) {
            Some(rate) => Some(Self(rate)),
            None => None,
        }
    }

    /// The rate in bytes per second.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Bytes that pass in `time`, rounded down; `u64::MAX` where that does not fit.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.get()).saturating_mul(time.as_micros()) / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The speed of a link, as ordered and paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkTier {
    /// `10g`: 10 Gbit/s.
    Gbit10,
    /// `40g`: 40 Gbit/s.
    Gbit40,
    /// `100g`: 100 Gbit/s.
    Gbit100,
}

impl LinkTier {
    /// All tiers, slowest first.
    pub const ALL: [Self; 3] = [Self::Gbit10, Self::Gbit40, Self::Gbit100];

    /// The name used on the command line and in rate cards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gbit10 => "10g",
            Self::Gbit40 => "40g",
            Self::Gbit100 => "100g",
        }
    }

    /// The most that all connections over the link may send together.
    pub const fn rate_cap(self) -> RateBytesPerS {
        RateBytesPerS(match self {
            Self::Gbit10 => const { NonZeroU64::new(1_250_000_000).expect("not 0") },
            Self::Gbit40 => const { NonZeroU64::new(5_000_000_000).expect("not 0") },
            Self::Gbit100 => const { NonZeroU64::new(12_500_000_000).expect("not 0") },
        })
    }

    /// Settings for a path of this tier with the given round-trip time.
    ///
    /// Half of `memory_bytes` is for windows, half for read-ahead; neither is exceeded, except that one run
    /// each is always allowed. Where the windows do not fit, every connection gets a smaller one, and
    /// connections that could not hold a single run are left out.
    pub fn profile(self, round_trip: Duration, memory_bytes: u64) -> LinkProfile {
        let rate_cap = self.rate_cap();
        let runs_in_memory = u32::try_from(memory_bytes / 2 / RUN_BYTES).unwrap_or(u32::MAX).max(1);
        let connections = self.connections_max().min(runs_in_memory);

        // Twice bandwidth times delay: credit for what was read comes back one delay later.
        let path_bytes = rate_cap.bytes_in(round_trip).saturating_mul(2);
        let runs_on_path = path_bytes.div_ceil(RUN_BYTES).div_ceil(u64::from(connections));
        let runs_in_flight = u32::try_from(runs_on_path)
            .unwrap_or(u32::MAX)
            .clamp(RUNS_IN_FLIGHT_LAN, RUNS_IN_FLIGHT_MAX)
            .min(runs_in_memory / connections);

        let ahead = rate_cap.bytes_in(round_trip.saturating_add(READ_AHEAD_SLACK));
        let runs_ahead = (ahead.min(memory_bytes / 2) / RUN_BYTES).max(1);
        LinkProfile {
            rate_cap,
            connections,
            endpoints: connections.min(self.endpoints_max()),
            runs_in_flight,
            connection_window_bytes: u64::from(runs_in_flight) * RUN_BYTES,
            stream_window_bytes: RUN_BYTES,
            read_ahead_bytes: runs_ahead * RUN_BYTES,
        }
    }

    /// One QUIC connection of quinn 0.11 carries about 0.8 GB/s in small packets, and its crypto is bound to
    /// one core; 4, 16 and 32 connections leave a factor of two to three.
    const fn connections_max(self) -> u32 {
        match self {
            Self::Gbit10 => 4,
            Self::Gbit40 => 16,
            Self::Gbit100 => 32,
        }
    }

    /// Each endpoint is one socket with one thread that receives.
    const fn endpoints_max(self) -> u32 {
        match self {
            Self::Gbit10 => 2,
            Self::Gbit40 => 8,
            Self::Gbit100 => 16,
        }
    }
}

impl fmt::Display for LinkTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LinkTier {
    type Err = ParseTierError;

    fn from_str(text: &str) -> Result<Self, ParseTierError> {
        let named = Self::ALL.into_iter().find(|tier| tier.name() == text);
        named.ok_or_else(|| ParseTierError { text: text.to_owned() })
    }
}

/// A text that names no tier.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no link tier: write 10g, 40g or 100g")]
pub struct ParseTierError {
    /// The text as given.
    pub text: String,
}

/// Settings of the transport for one path. All sizes are in bytes and multiples of [`RUN_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkProfile {
    /// The most that all connections may send together.
    pub rate_cap: RateBytesPerS,
    /// QUIC connections to open, at least one.
    pub connections: u32,
    /// Sockets to spread them over, at least one and at most `connections`.
    pub endpoints: u32,
    /// Runs on their way at a time, per connection.
    pub runs_in_flight: u32,
    /// Flow-control window of a connection: room for all its runs.
    pub connection_window_bytes: u64,
    /// Flow-control window of a stream: one run, see [`RUN_BYTES`].
    pub stream_window_bytes: u64,
    /// How far a sequential reader is kept ahead of what it has read.
    pub read_ahead_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn names_round_trip() {
        for tier in LinkTier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
        }
        assert_eq!("10G".parse::<LinkTier>(), Err(ParseTierError { text: "10G".to_owned() }));
    }

    #[test]
    fn a_local_path_gets_windows_of_16_mib() {
        let profile = LinkTier::Gbit10.profile(Duration::from_micros(200), GIB);
        assert_eq!(profile.runs_in_flight, 16);
        assert_eq!(profile.connection_window_bytes, 16 << 20);
        assert_eq!((profile.connections, profile.endpoints), (4, 2));
        assert_eq!(profile.read_ahead_bytes, 59 << 20);
    }

    #[test]
    fn a_long_path_gets_64_runs_and_no_more() {
        // 1.25 GB/s x 50 ms x 2 = 125 MB, 30 runs for each of 4 connections.
        let profile = LinkTier::Gbit10.profile(Duration::from_millis(50), GIB);
        assert_eq!(profile.runs_in_flight, 30);
        let profile = LinkTier::Gbit10.profile(Duration::from_secs(1), GIB);
        assert_eq!(profile.runs_in_flight, 64);
        assert_eq!(profile.connection_window_bytes, 64 << 20);
        assert_eq!(profile.stream_window_bytes, RUN_BYTES);
    }

    #[test]
    fn little_memory_means_fewer_connections() {
        let profile = LinkTier::Gbit100.profile(Duration::from_millis(20), 8 << 20);
        assert_eq!((profile.connections, profile.endpoints, profile.runs_in_flight), (4, 4, 1));
        let profile = LinkTier::Gbit100.profile(Duration::MAX, 0);
        assert_eq!((profile.connections, profile.endpoints, profile.runs_in_flight), (1, 1, 1));
    }

    proptest! {
        #[test]
        fn a_profile_stays_within_memory_and_is_usable(
            tier in proptest::sample::select(&LinkTier::ALL[..]),
            round_trip_us in 0_u64..10_000_000,
            memory_bytes in 2 * RUN_BYTES..64 * GIB,
        ) {
            let profile = tier.profile(Duration::from_micros(round_trip_us), memory_bytes);
            let windows = u64::from(profile.connections) * profile.connection_window_bytes;
            prop_assert!(windows + profile.read_ahead_bytes <= memory_bytes);
            prop_assert!((1..=RUNS_IN_FLIGHT_MAX).contains(&profile.runs_in_flight));
            prop_assert!((1..=profile.connections).contains(&profile.endpoints));
            prop_assert_eq!(profile.stream_window_bytes, RUN_BYTES);
        }
    }
}

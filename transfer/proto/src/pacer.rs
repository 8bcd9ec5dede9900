//! A token bucket without a clock.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use crate::tier::RateBytesPerS;

/// A moment on a monotonic clock, in microseconds since a start that the driver chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonotonicUs(pub u64);

impl MonotonicUs {
    /// Time from `earlier` to this moment, 0 if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for MonotonicUs {
    type Output = Self;

    /// The moment `later` after this one, to the full microsecond below; at most the last one there is.
    fn add(self, later: Duration) -> Self {
        Self(u64::try_from(later.as_micros()).map_or(u64::MAX, |us| self.0.saturating_add(us)))
    }
}

impl fmt::Display for MonotonicUs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", self.0)
    }
}

/// The answer to whether something may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It may, and its tokens are taken.
    Now,
    /// Not before this moment, and nothing is taken. Asking again exactly then is answered by
    /// [`Pace::Now`] if nothing else was sent in between.
    At(MonotonicUs),
}

/// Keeps what is sent below `burst + rate x time`.
///
/// One token is one byte. The bucket starts full, is refilled at the rate and holds at most the burst; time
/// spent full earns nothing. Something larger than the burst goes when the bucket is full and leaves a
/// debt, so that it is neither stuck nor free.
///
/// Calls: [`Pacer::handle_send`] for all that is sent, [`Pacer::handle_rate`] when the link or its share
/// changes, [`Pacer::poll_at`] to arm a timer. Moments may repeat; one before the last is taken as the last.
///
/// Arithmetic is in whole millionths of a byte, so that a microsecond at any rate is a whole number: how
/// often the bucket is asked changes nothing.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: RateBytesPerS,
    burst: i128,
    /// Millionths of a byte in the bucket; below 0 is debt.
    credit: i128,
    settled_at: MonotonicUs,
}

impl Pacer {
    /// A full bucket.
    pub fn new(rate: RateBytesPerS, burst_bytes: u64, now: MonotonicUs) -> Self {
        let burst = millionths(burst_bytes);
        Self { rate, burst, credit: burst, settled_at: now }
    }

    /// Asks to send `bytes` now, and takes their tokens if the answer is [`Pace::Now`].
    pub fn handle_send(&mut self, now: MonotonicUs, bytes: u64) -> Pace {
        self.settle(now);
        let at = self.poll_at(bytes);
        if at > self.settled_at {
            return Pace::At(at);
        }
        self.credit -= millionths(bytes);
        Pace::Now
    }

    /// Changes the rate from now on. What was earned until now was earned at the old one.
    pub fn handle_rate(&mut self, now: MonotonicUs, rate: RateBytesPerS) {
        self.settle(now);
        self.rate = rate;
    }

    /// The first moment at which `bytes` may be sent if nothing else is sent before; the moment of the last
    /// call that changed something, if they may already. [`u64::MAX`] microseconds stand for never.
    pub fn poll_at(&self, bytes: u64) -> MonotonicUs {
        let needed = millionths(bytes).min(self.burst);
        let Ok(lacking) = u128::try_from(needed - self.credit) else {
            return self.settled_at;
        };
        let wait_us = lacking.div_ceil(u128::from(self.rate.get()));
        let at = u128::from(self.settled_at.0) + wait_us;
        MonotonicUs(u64::try_from(at).unwrap_or(u64::MAX))
    }

    /// Whole bytes in the bucket at the last call that changed something; 0 while there is debt.
    pub fn credit_bytes(&self) -> u64 {
        u64::try_from(self.credit / MILLION).unwrap_or(0)
    }

    /// Adds what was earned until `now`.
    fn settle(&mut self, now: MonotonicUs) {
        let elapsed_us = now.0.saturating_sub(self.settled_at.0);
        let earned = u128::from(self.rate.get()) * u128::from(elapsed_us);
        let room = self.burst - self.credit;
        self.credit += i128::try_from(earned).map_or(room, |earned| earned.min(room));
        self.settled_at = self.settled_at.max(now);
    }
}

/// Bytes in the unit of the bucket. 2^64 of them are below 2^84, far from the end of an `i128`.
fn millionths(bytes: u64) -> i128 {
    i128::from(bytes) * MILLION
}

const MILLION: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(bytes_per_s: u64) -> RateBytesPerS {
        RateBytesPerS::new(bytes_per_s).unwrap()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let mut pacer = Pacer::new(rate(1_000), 500, MonotonicUs(7));
        assert_eq!(pacer.handle_send(MonotonicUs(7), 500), Pace::Now);
        assert_eq!(pacer.handle_send(MonotonicUs(7), 1), Pace::At(MonotonicUs(1_007)));
        assert_eq!(pacer.handle_send(MonotonicUs(1_006), 1), Pace::At(MonotonicUs(1_007)));
        assert_eq!(pacer.handle_send(MonotonicUs(1_007), 1), Pace::Now);
        assert_eq!(pacer.credit_bytes(), 0);
    }

    #[test]
    fn something_larger_than_the_burst_leaves_a_debt() {
        let mut pacer = Pacer::new(rate(100), 10, MonotonicUs(0));
        assert_eq!(pacer.handle_send(MonotonicUs(0), 110), Pace::Now);
        assert_eq!(pacer.poll_at(0), MonotonicUs(1_000_000));
        assert_eq!(pacer.handle_send(MonotonicUs(0), 110), Pace::At(MonotonicUs(1_100_000)));
        assert_eq!(pacer.credit_bytes(), 0);
    }

    #[test]
    fn time_that_goes_back_earns_nothing() {
        let mut pacer = Pacer::new(rate(1_000_000), 10, MonotonicUs(50));
        assert_eq!(pacer.handle_send(MonotonicUs(50), 10), Pace::Now);
        assert_eq!(pacer.handle_send(MonotonicUs(0), 10), Pace::At(MonotonicUs(60)));
        assert_eq!(pacer.handle_send(MonotonicUs(59), 10), Pace::At(MonotonicUs(60)));
    }

    #[test]
    fn a_new_rate_counts_from_its_moment() {
        let mut pacer = Pacer::new(rate(1_000_000), 100, MonotonicUs(0));
        assert_eq!(pacer.handle_send(MonotonicUs(0), 100), Pace::Now);
        pacer.handle_rate(MonotonicUs(40), rate(2_000_000));
        assert_eq!(pacer.poll_at(100), MonotonicUs(70));
    }

    #[test]
    fn the_ends_of_the_range_do_not_overflow() {
        let mut pacer = Pacer::new(rate(1), u64::MAX, MonotonicUs(0));
        assert_eq!(pacer.handle_send(MonotonicUs(0), u64::MAX), Pace::Now);
        assert_eq!(pacer.handle_send(MonotonicUs(0), u64::MAX), Pace::At(MonotonicUs(u64::MAX)));
        pacer.handle_rate(MonotonicUs(0), rate(u64::MAX));
        assert_eq!(pacer.handle_send(MonotonicUs(u64::MAX), u64::MAX), Pace::Now);
    }

    /// The bucket as its definition reads: a loop over microseconds.
    struct Model {
        rate: i128,
        burst: i128,
        credit: i128,
        now: u64,
    }

    impl Model {
        fn advance(&mut self, now: u64) {
            while self.now < now {
                self.credit = (self.credit + self.rate).min(self.burst);
                self.now += 1;
            }
        }
    }

    proptest! {
        #[test]
        fn equals_a_bucket_that_ticks_every_microsecond(
            first_rate in 1_u64..5_000_000,
            burst in 0_u64..3_000,
            steps in proptest::collection::vec((0_u64..400, 0_u64..4_000, proptest::option::weighted(0.1, 1_u64..5_000_000)), 1..60),
        ) {
            let mut pacer = Pacer::new(rate(first_rate), burst, MonotonicUs(0));
            let burst = millionths(burst);
            let mut model = Model { rate: i128::from(first_rate), burst, credit: burst, now: 0 };
            for (elapsed_us, bytes, new_rate) in steps {
                let now = MonotonicUs(model.now + elapsed_us);
                model.advance(now.0);
                if let Some(new_rate) = new_rate {
                    pacer.handle_rate(now, rate(new_rate));
                    model.rate = i128::from(new_rate);
                }
                let may = model.credit >= millionths(bytes).min(burst);
                match pacer.handle_send(now, bytes) {
                    Pace::Now => {
                        prop_assert!(may);
                        model.credit -= millionths(bytes);
                    }
                    Pace::At(at) => {
                        prop_assert!(!may);
                        // The moment is the first that is late enough.
                        let wait_us = i128::from(at.0 - now.0);
                        let needed = millionths(bytes).min(burst);
                        prop_assert!(model.credit + model.rate * wait_us >= needed);
                        prop_assert!(model.credit + model.rate * (wait_us - 1) < needed);
                    }
                }
                prop_assert_eq!(pacer.credit, model.credit);
            }
        }

        #[test]
        fn a_sender_that_is_always_ready_gets_every_token_and_none_more(
            bytes_per_s in 1_u64..10_000_000_000,
            burst in 20_000_u64..10_000_000,
            sizes in proptest::collection::vec(1_u64..10_000_000, 1..100),
        ) {
            let mut pacer = Pacer::new(rate(bytes_per_s), burst, MonotonicUs(0));
            let mut now = MonotonicUs(0);
            let mut sent = 0_u64;
            // Less than the burst by what one microsecond can earn, so that the bucket never overflows.
            for bytes in sizes.into_iter().map(|bytes| bytes.min(burst - 10_000)) {
                now = now.max(pacer.poll_at(bytes));
                prop_assert_eq!(pacer.handle_send(now, bytes), Pace::Now);
                sent += bytes;
                let allowed = millionths(burst) + i128::from(bytes_per_s) * i128::from(now.0);
                prop_assert_eq!(pacer.credit, allowed - millionths(sent));
                prop_assert!(pacer.credit >= 0);
            }
        }
    }
}

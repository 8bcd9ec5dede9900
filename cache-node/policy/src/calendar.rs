//! Days and months, always UTC, computed from seconds without a clock.
//!
//! There is one calendar for counting, billing and refusing: a month begins and ends at the same second on every node,
//! whatever its time zone.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Seconds in a day; UTC as computers keep it has no leap seconds.
const DAY_S: i64 = 86_400;
/// The days that [`Day`] can name: 0000-01-01 to 9999-12-31.
const FIRST_DAY: i64 = days_of(0, 1, 1);
const LAST_DAY: i64 = days_of(9999, 12, 31);

/// A calendar month, written `2026-11`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: u16,
    month: u8,
}

impl Month {
    /// The month in which a second since 1970 lies. Seconds outside of the years 0 to 9999 give the nearest month.
    #[must_use]
    pub fn of_unix(seconds: i64) -> Self {
        Day::of_unix(seconds).month()
    }

    /// The month with the number `YYYYMM`, for example 202611.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let (year, month) = (u16::try_from(number / 100).ok()?, u8::try_from(number % 100).ok()?);
        (year <= 9999 && (1..=12).contains(&month)).then_some(Self { year, month })
    }

    /// The number `YYYYMM`.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self.year) * 100 + u32::from(self.month)
    }

    /// The first second, counted since 1970.
    #[must_use]
    pub fn start_unix(self) -> i64 {
        days_of(self.year.into(), self.month.into(), 1) * DAY_S
    }

    /// The first second of the month after: when a budget starts anew.
    #[must_use]
    pub fn end_unix(self) -> i64 {
        self.start_unix() + i64::from(self.len_days()) * DAY_S
    }

    /// The month before; none before year 0.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match (self.year, self.month) {
            (0, 1) => None,
            (year, 1) => Some(Self { year: year - 1, month: 12 }),
            (year, month) => Some(Self { year, month: month - 1 }),
        }
    }

    /// The day with this number, from 1.
    #[must_use]
    pub fn day(self, number: u8) -> Option<Day> {
        (1..=self.len_days()).contains(&number).then_some(Day { month: self, day: number })
    }

    /// Days it has.
    #[must_use]
    pub const fn len_days(self) -> u8 {
        match self.month {
            2 if self.year.is_multiple_of(400) || (self.year.is_multiple_of(4) && !self.year.is_multiple_of(100)) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl fmt::Debug for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Month {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let number = digits(text, &[4, 2]).and_then(|parts| Self::from_number(parts[0] * 100 + parts[1]));
        number.ok_or_else(|| CalendarError::Month { text: text.to_owned() })
    }
}

/// A calendar day, written `2026-11-30`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day {
    month: Month,
    day: u8,
}

impl Day {
    /// The first day there is.
    pub const MIN: Self = Self { month: Month { year: 0, month: 1 }, day: 1 };
    /// The last day there is.
    pub const MAX: Self = Self { month: Month { year: 9999, month: 12 }, day: 31 };

    /// The day in which a second since 1970 lies. Seconds outside of the years 0 to 9999 give the nearest day.
    #[must_use]
    pub fn of_unix(seconds: i64) -> Self {
        civil(seconds.div_euclid(DAY_S).clamp(FIRST_DAY, LAST_DAY))
    }

    /// The month it belongs to.
    #[must_use]
    pub const fn month(self) -> Month {
        self.month
    }

    /// Its number in the month, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.day
    }

    /// The day after; none after 9999-12-31.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let days = days_of(self.month.year.into(), self.month.month.into(), self.day.into()) + 1;
        (days <= LAST_DAY).then(|| civil(days))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:02}", self.month, self.day)
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Day {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let day = digits(text, &[4, 2, 2])
            .and_then(|parts| Month::from_number(parts[0] * 100 + parts[1])?.day(u8::try_from(parts[2]).ok()?));
        day.ok_or_else(|| CalendarError::Day { text: text.to_owned() })
    }
}

/// A text that is no day or month.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// No month.
    #[error("{text:?} is no month: write for example 2026-11")]
    Month {
        /// The text as given.
        text: String,
    },
    /// No day.
    #[error("{text:?} is no day: write for example 2026-11-30")]
    Day {
        /// The text as given.
        text: String,
    },
}

/// Numbers of exactly so many digits each, with hyphens between.
fn digits(text: &str, widths: &[usize]) -> Option<Vec<u32>> {
    let parts: Vec<&str> = text.split('-').collect();
    let is_whole = parts.len() == widths.len()
        && parts.iter().zip(widths).all(|(part, width)| part.len() == *width)
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    is_whole.then(|| parts.iter().filter_map(|part| part.parse().ok()).collect())
}

/// Days since 1970-01-01 of a date in the Gregorian calendar, also before it was used.
///
/// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day since 1970-01-01 that lies in the years 0 to 9999. Source: as above, `civil_from_days`.
fn civil(days: i64) -> Day {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let in_range = "a day of the years 0 to 9999";
    let month = Month { year: year.try_into().expect(in_range), month: month.try_into().expect(in_range) };
    Day { month, day: day.try_into().expect(in_range) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    #[test]
    fn months_begin_and_end_at_midnight_utc() {
        let end = 1_796_083_200; // 2026-12-01T00:00:00Z
        assert_eq!(month("2026-11").end_unix(), end);
        assert_eq!(month("2026-12").start_unix(), end);
        assert_eq!(Month::of_unix(end - 1), month("2026-11"));
        assert_eq!(Month::of_unix(end), month("2026-12"));
        assert_eq!(Day::of_unix(end - 10).to_string(), "2026-11-30");
        assert_eq!(Day::of_unix(0).to_string(), "1970-01-01");
        assert_eq!(Day::of_unix(-1).to_string(), "1969-12-31");
    }

    #[test]
    fn the_month_before_has_its_own_length() {
        // From 31 March "a month back" is no day at all; the month before is February, leap or not.
        for (day, previous, days) in [("2027-03-31", "2027-02", 28), ("2028-03-31", "2028-02", 29)] {
            let before = day.parse::<Day>().unwrap().month().previous().unwrap();
            assert_eq!((before, before.len_days()), (month(previous), days));
        }
        assert_eq!(month("2027-01").previous(), Some(month("2026-12")));
        assert_eq!(month("0000-01").previous(), None);
        assert_eq!([1900, 2000, 2024, 2026].map(|year| month(&format!("{year}-02")).len_days()), [28, 29, 29, 28]);
    }

    #[test]
    fn only_whole_dates_are_dates() {
        for bad in ["2026-13", "2026-00", "2026-1", "26-11", "2026", "2026-11-01", "+026-11", "2026/11", "", "2026-11 "]
        {
            assert!(bad.parse::<Month>().is_err(), "{bad:?}");
        }
        for bad in ["2026-02-29", "2026-11-31", "2026-11-00", "2026-11", "2026-11-1", "2026-11-30T00:00:00Z"] {
            assert!(bad.parse::<Day>().is_err(), "{bad:?}");
        }
        assert_eq!("2028-02-29".parse::<Day>().unwrap().next().unwrap().to_string(), "2028-03-01");
        assert_eq!(Day::MAX.next(), None);
    }

    #[test]
    fn a_clock_that_is_far_off_still_has_a_day() {
        assert_eq!((Day::of_unix(i64::MIN), Day::of_unix(i64::MAX)), (Day::MIN, Day::MAX));
        assert_eq!(civil(FIRST_DAY), Day::MIN);
    }

    proptest! {
        #[test]
        fn days_follow_each_other(seconds in -62_167_219_200_i64..253_402_214_400) {
            let day = Day::of_unix(seconds);
            prop_assert_eq!(day.to_string().parse(), Ok(day));
            prop_assert_eq!(day.next(), Some(Day::of_unix(seconds + DAY_S)));
            let month = day.month();
            prop_assert!(month.start_unix() <= seconds && seconds < month.end_unix());
            prop_assert_eq!(Month::from_number(month.number()), Some(month));
            prop_assert_eq!(month.day(day.number()), Some(day));
            prop_assert_eq!(Month::of_unix(month.start_unix() - 1), month.previous().unwrap_or(month));
        }
    }
}

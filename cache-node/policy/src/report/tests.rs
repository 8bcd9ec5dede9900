//! Reports: the sums of the field cases, and every byte in exactly one row.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::{Pattern, Rate};

fn rate(from: &str, to: &str, price: &str) -> Rate {
    Rate {
        provider: Pattern::ANY,
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        tier: Pattern::ANY,
        price: price.parse().unwrap(),
        first_day: None,
        last_day: None,
    }
}

fn key(from: &str, to: &str) -> UsageKey {
    UsageKey { from: from.to_owned(), to: to.to_owned(), ..UsageKey::default() }
}

fn sent(bytes: u64) -> Usage {
    Usage { sent_bytes: bytes, ..Usage::default() }
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

fn amount(money: Money) -> String {
    money.to_string()
}

#[test]
fn gb_and_gib_are_priced_as_what_they_are() {
    let card =
        RateCard::new(String::new(), vec![rate("eu", "internet", "0.09 USD/GB"), rate("us", "eu", "0.02 USD/GiB")])
            .unwrap();
    let by = vec![Column::Key(KeyField::From)];
    let mut report = Report::new(by, Some(&card), None);
    for (from, to) in [("eu", "internet"), ("us", "eu")] {
        report.add(Day::MIN, "n", &key(from, to), &sent(107_374_182_400)).unwrap();
    }
    let summary = report.finish().unwrap();
    let shown: Vec<_> = summary
        .rows
        .iter()
        .map(|row| row.cost.as_ref().unwrap())
        .map(|cost| (amount(cost.sent), cost.prices[0].to_string()))
        .collect();
    assert_eq!(
        shown,
        [("9.663676416 USD".to_owned(), "0.09 USD/GB".to_owned()), ("2 USD".to_owned(), "0.02 USD/GiB".to_owned())]
    );
    assert_eq!(amount(summary.total.cost.unwrap().sent), "11.663676416 USD");
}

#[test]
fn a_way_without_a_price_is_never_free() {
    let card = RateCard::new(String::new(), vec![rate("us", "eu", "0.02 USD/GiB")]).unwrap();
    let mut report = Report::new(Vec::new(), Some(&card), None);
    report.add(day("2026-11-02"), "n", &key("us", "eu"), &sent(1)).unwrap();
    report.add(day("2026-11-03"), "n", &key("eu", "internet"), &sent(1)).unwrap();
    report.add(day("2026-11-02"), "n", &key("eu", "internet"), &sent(1)).unwrap();
    report.add(day("2026-11-02"), "n", &key("eu", "us"), &Usage { avoided_bytes: 1, ..sent(0) }).unwrap();
    // Requests alone cost nothing.
    report.add(day("2026-11-02"), "n", &key("x", "y"), &Usage { requests: 1, ..sent(0) }).unwrap();
    let error = report.finish().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no price for eu → internet on 2026-11-02, nor for 1 more"), "{text}");
}

#[test]
fn each_day_has_its_own_price_and_avoided_bytes_have_one_too() {
    let until = Rate { last_day: Some(day("2026-11-15")), ..rate("*", "*", "2 USD/GB") };
    let after = Rate { first_day: Some(day("2026-11-16")), ..rate("*", "*", "1 USD/GB") };
    let card = RateCard::new(String::new(), vec![until, after]).unwrap();
    let mut report = Report::new(Vec::new(), Some(&card), None);
    let gb = 1_000_000_000;
    for (day_text, bytes) in [("2026-11-15", gb), ("2026-11-16", gb)] {
        let usage = Usage { avoided_bytes: 3 * bytes, retried_bytes: bytes / 2, ..sent(bytes) };
        report.add(day(day_text), "n", &key("a", "b"), &usage).unwrap();
    }
    let total = report.finish().unwrap().rows.remove(0).cost.unwrap();
    assert_eq!((amount(total.sent), amount(total.avoided)), ("3 USD".to_owned(), "9 USD".to_owned()));
    assert_eq!(total.prices.len(), 2);
}

#[test]
fn retries_are_billed_and_counted_apart() {
    // Ten ranges of 1 MiB: reset, cut after 512 KiB, whole.
    let (mib, half) = (1 << 20, 1 << 19);
    let mut report = Report::new(Vec::new(), None, None);
    for _ in 0..10 {
        let tries = [(0, 0, 0), (0, half, half), (mib, mib, 0)];
        for (payload_bytes, sent_bytes, retried_bytes) in tries {
            let usage = Usage { payload_bytes, sent_bytes, retried_bytes, requests: 1, ..Usage::default() };
            report.add(Day::MIN, "n", &key("origin:http", "gateway"), &usage).unwrap();
        }
    }
    let total = report.finish().unwrap().total.usage;
    assert_eq!((total.payload_bytes, total.sent_bytes), (10_485_760, 15_728_640));
    assert_eq!((total.retried_bytes, total.requests), (5_242_880, 30));
}

proptest! {
    #[test]
    fn every_byte_is_in_one_row_and_the_rows_are_the_total(
        added in vec((select(vec!["a", "b"]), select(vec!["x", "y"]), 1..=30_u8, select(vec!["n", "m"]), 0..1_u64 << 40),
            0..40),
        by in subsequence(vec![Column::Key(KeyField::From), Column::Key(KeyField::To), Column::Day, Column::Node], 0..=4),
    ) {
        let card = RateCard::new(String::new(), vec![
            rate("a", "*", "0.09 USD/GB"), rate("b", "x", "0.02 USD/GiB"), rate("b", "*", "0.007 USD/GiB"),
        ]).unwrap();
        let month: crate::Month = "2026-11".parse().unwrap();
        let mut report = Report::new(by, Some(&card), None);
        let mut bytes_sent = 0;
        for (from, to, number, node, bytes) in added {
            report.add(month.day(number).unwrap(), node, &key(from, to), &sent(bytes)).unwrap();
            bytes_sent += bytes;
        }
        let summary = report.finish().unwrap();
        prop_assert_eq!(summary.total.usage.sent_bytes, bytes_sent);
        prop_assert_eq!(summary.rows.iter().map(|row| row.usage.sent_bytes).sum::<u64>(), bytes_sent);
        let usd = "USD".parse().unwrap();
        let costs = summary.rows.iter().map(|row| row.cost.clone().unwrap().sent);
        let sum = costs.fold(Money::zero(usd), |sum, cost| sum.checked_add(cost).unwrap());
        prop_assert_eq!(sum, summary.total.cost.unwrap().sent);
        prop_assert!(summary.rows.is_sorted_by(|one, two| one.group < two.group));
    }
}

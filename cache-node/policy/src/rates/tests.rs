//! Which rate counts, and which cards are refused.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

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

fn card(rates: Vec<Rate>) -> Result<RateCard, RateCardError> {
    RateCard::new("test".to_owned(), rates)
}

fn route<'r>(from: &'r str, to: &'r str) -> Route<'r> {
    Route { provider: None, from, to, tier: "10g" }
}

fn price(card: &RateCard, from: &str, to: &str) -> Option<String> {
    card.price(&route(from, to), day("2026-11-30")).map(|price| price.to_string())
}

#[test]
fn the_most_specific_rate_counts_in_any_order() {
    let mut rates = vec![
        rate("*", "*", "5 USD/GB"),
        rate("site:*", "*", "4 USD/GB"),
        rate("site:fra-*", "*", "3 USD/GB"),
        rate("site:fra-1", "*", "2 USD/GB"),
        rate("site:fra-1", "gateway", "1 USD/GB"),
    ];
    for _ in 0..2 {
        let card = card(rates.clone()).unwrap();
        for (from, to, wanted) in [
            ("gateway", "site:fra-1", "5 USD/GB"),
            ("site:ams-1", "gateway", "4 USD/GB"),
            ("site:fra-2", "gateway", "3 USD/GB"),
            ("site:fra-1", "site:ams-1", "2 USD/GB"),
            ("site:fra-1", "gateway", "1 USD/GB"),
        ] {
            assert_eq!(price(&card, from, to).as_deref(), Some(wanted), "{from} {to}");
        }
        rates.reverse();
    }
}

#[test]
fn ways_without_a_rate_have_no_price() {
    let card = card(vec![rate("origin:*", "gateway", "0.09 USD/GB")]).unwrap();
    assert_eq!(price(&card, "gateway", "origin:s3"), None);
    assert_eq!(price(&card, "origin", "gateway"), None);
}

#[test]
fn a_provider_that_is_not_known_fits_only_rates_for_all() {
    let aws = Rate { provider: "aws".parse().unwrap(), ..rate("*", "*", "1 USD/GB") };
    let all = rate("*", "*", "2 USD/GB");
    let card = card(vec![aws, all]).unwrap();
    let price = |provider| card.price(&Route { provider, ..route("a", "b") }, Day::MIN).unwrap().to_string();
    assert_eq!([price(Some("aws")), price(Some("gcp")), price(None)], ["1 USD/GB", "2 USD/GB", "2 USD/GB"]);
}

#[test]
fn prices_change_at_midnight() {
    let old = Rate { last_day: Some(day("2026-06-30")), ..rate("*", "*", "2 USD/GB") };
    let new = Rate { first_day: Some(day("2026-07-01")), ..rate("*", "*", "1 USD/GB") };
    let card = card(vec![new, old]).unwrap();
    let price = |text| card.price(&route("a", "b"), day(text)).unwrap().to_string();
    assert_eq!([price("2026-06-30"), price("2026-07-01")], ["2 USD/GB", "1 USD/GB"]);
}

#[test]
fn one_way_twice_on_one_day_is_refused() {
    let old = Rate { last_day: Some(day("2026-07-01")), ..rate("a", "b", "2 USD/GB") };
    let new = Rate { first_day: Some(day("2026-07-01")), ..rate("a", "b", "1 USD/GB") };
    let error = card(vec![rate("x", "y", "1 USD/GB"), old, new]).unwrap_err();
    assert!(matches!(&error, RateCardError::Overlap { one, two, day: found }
        if (one.number, two.number) == (2, 3) && *found == day("2026-07-01")));
    assert!(error.to_string().contains("route 2 (a → b until 2026-07-01) and route 3 (a → b from 2026-07-01)"));
    // The same price twice is a mistake too: nobody would change both.
    assert!(card(vec![rate("a", "b", "1 USD/GB"), rate("a", "b", "1 USD/GB")]).is_err());
}

#[test]
fn ties_are_refused_until_a_third_rate_decides() {
    let (from, to) = (rate("a", "*", "1 USD/GB"), rate("*", "b", "2 USD/GB"));
    let error = card(vec![from.clone(), to.clone()]).unwrap_err();
    assert!(matches!(&error, RateCardError::Tie { way, .. } if way == "a → b"), "{error:?}");
    let both = rate("a", "b", "3 USD/GB");
    let decided = card(vec![from.clone(), to.clone(), both.clone()]).unwrap();
    assert_eq!(price(&decided, "a", "b").as_deref(), Some("3 USD/GB"));
    // It has to decide on every day on which the tie is there.
    let until = Rate { last_day: Some(day("2026-06-30")), ..both.clone() };
    let later = Rate { first_day: Some(day("2026-07-02")), ..both.clone() };
    let error = card(vec![from.clone(), to.clone(), later, until.clone()]).unwrap_err();
    assert!(matches!(&error, RateCardError::Tie { day: found, .. } if *found == day("2026-07-01")), "{error:?}");
    let next = Rate { first_day: Some(day("2026-07-01")), ..both };
    assert!(card(vec![from, to, next, until]).is_ok());
}

#[test]
fn cards_that_mean_nothing_are_refused() {
    assert_eq!(card(Vec::new()), Err(RateCardError::Empty));
    let mix = card(vec![rate("a", "b", "1 USD/GB"), rate("b", "a", "1 EUR/GB")]).unwrap_err();
    assert!(matches!(&mix, RateCardError::Currencies { entry, .. } if entry.number == 2), "{mix:?}");
    let backwards = Rate { first_day: Some(Day::MAX), last_day: Some(Day::MIN), ..rate("a", "b", "1 USD/GB") };
    assert!(matches!(card(vec![backwards]), Err(RateCardError::Days { .. })));
    assert!(matches!(card(vec![rate("a", "b", "1 USD/GB"); RATES_MAX + 1]), Err(RateCardError::TooMany { .. })));
    for bad in ["", "**", "a*b", "*a", "a b", "a\n"] {
        assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
    }
}

fn pattern() -> impl Strategy<Value = Pattern> {
    select(vec!["*", "a", "a*", "a:x", "a:*", "b"]).prop_map(|text| text.parse().unwrap())
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let days = prop::option::of((1..=28_u8, 1..=28_u8));
    (pattern(), pattern(), pattern(), pattern(), 0..1000_u32, days).prop_map(
        |(provider, from, to, tier, price, days)| {
            let month: crate::Month = "2026-11".parse().unwrap();
            let day = |number| month.day(number);
            let (first_day, last_day) = days.map_or((None, None), |(one, two)| (day(one.min(two)), day(one.max(two))));
            let price = format!("{price} USD/GB").parse().unwrap();
            Rate { provider, from, to, tier, price, first_day, last_day }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// The slow meaning of "most specific", for every way and day of a small world.
    #[test]
    fn a_card_decides_every_way_or_is_refused(rates in vec(any_rate(), 1..6)) {
        const TEXTS: [&str; 5] = ["a", "a:x", "a:y", "ab", "b"];
        let accepted = card(rates.clone());
        let mut undecided = false;
        for (from, to, tier) in TEXTS.iter().flat_map(|from| TEXTS.map(|to| (from, to)))
            .flat_map(|(from, to)| TEXTS.map(|tier| (from, to, tier)))
        {
            for provider in [None, Some("a"), Some("a:x"), Some("b"), Some("z")] {
                let route = Route { provider, from, to, tier };
                for day in ["2026-11-01", "2026-11-15", "2026-11-28", "2026-12-01"].map(day) {
                    let fitting: Vec<&Rate> =
                        rates.iter().filter(|rate| rate.holds_on(day) && rate.fits(&route)).collect();
                    let best = fitting.iter().filter(|one| {
                        let beats = |two: &&&Rate| one.compare(two) == Some(Ordering::Less) || std::ptr::eq(**one, **two);
                        fitting.iter().all(|two| beats(&two))
                    });
                    let best: Vec<Price> = best.map(|rate| rate.price).collect();
                    undecided |= !fitting.is_empty() && best.len() != 1;
                    if let Ok(card) = &accepted {
                        let found: Vec<Price> = card.price(&route, day).into_iter().collect();
                        prop_assert_eq!(found, best, "{:?} {}", route, day);
                    }
                }
            }
        }
        prop_assert!(!(undecided && accepted.is_ok()));
    }
}

//! Prices, costs and budgets: the sums of the field cases, and every digit kept.

use proptest::prelude::*;

use super::*;

fn price(text: &str) -> Price {
    text.parse().unwrap()
}

fn usd(amount: &str) -> Money {
    Money { amount: amount.parse().unwrap(), currency: "USD".parse().unwrap() }
}

#[test]
fn gb_and_gib_are_different_units() {
    let bytes = 107_374_182_400;
    assert_eq!(price("0.09 USD/GB").cost(bytes), Ok(usd("9.663676416")));
    assert_eq!(price("0.02USD/GiB").cost(bytes), Ok(usd("2")));
}

#[test]
fn ten_bookings_of_ten_cents_are_exactly_one() {
    let sum = (0..10).try_fold(usd("0"), |sum, _| sum.checked_add(usd("0.10")));
    assert_eq!(sum, Ok(usd("1")));
}

#[test]
fn a_price_needs_currency_and_unit() {
    assert!(matches!("0.09 USD".parse::<Price>(), Err(MoneyError::UnitMissing { .. })));
    assert!(matches!("0.09/GB".parse::<Price>(), Err(MoneyError::Currency { .. })));
    assert!(matches!("0.09 USD/gb".parse::<Price>(), Err(MoneyError::PriceUnit { .. })));
    assert!(matches!("0.09 USD/TB".parse::<Price>(), Err(MoneyError::PriceUnit { .. })));
    for number in ["-1", "1e3", "1,5", ".5", "5.", "1.2.3", "", "0.0000000001", "NaN"] {
        assert!(format!("{number}USD/GB").parse::<Price>().is_err(), "{number}");
    }
}

#[test]
fn prices_are_shown_with_their_unit() {
    assert_eq!(price("0.090 USD / GB").to_string(), "0.09 USD/GB");
    assert_eq!(price("12EUR/GiB").to_string(), "12 EUR/GiB");
}

#[test]
fn a_cost_per_gib_is_rounded_in_the_18th_decimal() {
    // 1 / 2^30 = 9.31322574615478515625e-10.
    assert_eq!(price("1USD/GiB").cost(1), Ok(usd("0.000000000931322575")));
}

#[test]
fn halves_go_to_the_even_neighbour() {
    assert_eq!([5, 15, 25, 26, 24].map(|value| divide_half_even(value, 10)), [0, 2, 2, 3, 2]);
}

#[test]
fn what_cannot_be_kept_exactly_is_refused() {
    assert_eq!(price("1000000USD/GB").cost(u64::MAX), Err(MoneyError::Overflow));
    let large = Money { amount: Decimal::MAX, ..usd("0") };
    assert_eq!(large.checked_add(usd("1")), Err(MoneyError::Overflow));
    assert_eq!(large.checked_add(usd("0.1")), Err(MoneyError::Overflow));
    let mix = usd("1").checked_add(Money::zero("EUR".parse().unwrap()));
    assert!(matches!(mix, Err(MoneyError::CurrencyMix { .. })));
}

#[test]
fn budgets_are_bytes_or_money_and_never_a_guess() {
    assert_eq!("100GB".parse(), Ok(Budget::Bytes(100_000_000_000)));
    assert_eq!("1.5 TiB".parse(), Ok(Budget::Bytes(3 << 39)));
    assert_eq!("25USD".parse(), Ok(Budget::Money(usd("25"))));
    for text in ["100", "100gb", "100GIB", "100G", "25 Dollars", "USD"] {
        assert!(text.parse::<Budget>().is_err(), "{text}");
    }
    assert!(matches!("0.1B".parse::<Budget>(), Err(MoneyError::Bytes { .. })));
    assert!(matches!("100000PB".parse::<Budget>(), Err(MoneyError::Bytes { .. })));
}

proptest! {
    #[test]
    fn a_cost_per_gb_is_exact(mantissa in 0_i64..1_000_000_000_000, scale in 0_u32..=9, bytes in 0_u64..1 << 50) {
        let amount = Decimal::new(mantissa, scale).normalize();
        let price = price(&format!("{amount}USD/GB"));
        if let Ok(cost) = price.cost(bytes) {
            // cost x 10^18 x 10^9 = mantissa x 10^(18 - scale) x bytes, in whole numbers; the common 10^9 is left out.
            let mut cost = cost.amount;
            cost.rescale(18);
            let mantissa = amount.mantissa() * 10_i128.pow(9 - amount.scale());
            prop_assert_eq!(mantissa * i128::from(bytes), cost.mantissa());
        } else {
            let about = amount.mantissa() / 10_i128.pow(amount.scale()) * i128::from(bytes >> 30);
            prop_assert!(about > 70_000_000_000);
        }
    }

    #[test]
    fn a_cost_per_gib_is_off_by_at_most_half_a_step(mantissa in 0_i64..1_000_000, bytes in 0_u64..1 << 40) {
        let mut cost = price(&format!("{}USD/GiB", Decimal::new(mantissa, 6))).cost(bytes).unwrap().amount;
        cost.rescale(18);
        let exact = i128::from(mantissa) * i128::from(bytes) * 10_i128.pow(12);
        prop_assert!((exact - (cost.mantissa() << 30)).abs() <= 1 << 29);
    }

    #[test]
    fn budgets_round_trip(bytes in any::<u64>(), shift in 0_u32..64, mantissa in 0_i64..i64::MAX, scale in 0_u32..=18) {
        let bytes = Budget::Bytes(bytes >> shift << shift);
        prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        let amount = Decimal::new(mantissa, scale).normalize();
        let money = Budget::Money(Money { amount, ..usd("0") });
        prop_assert_eq!(money.to_string().parse(), Ok(money));
    }
}

//! No budget is overspent, whoever books in whatever order; the same changes give the same book.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

const MIB: u64 = 1 << 20;

fn month(text: &str) -> Month {
    text.parse().unwrap()
}

fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

fn budget(text: &str) -> Budget {
    text.parse().unwrap()
}

fn usd(text: &str) -> Option<Money> {
    Some(Money { amount: text.parse().unwrap(), currency: "USD".parse().unwrap() })
}

fn id(number: u64) -> BookingId {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    BookingId(id)
}

fn booking(number: u64, bytes: u64, cost: Option<Money>) -> Booking {
    let (tenant, job, holder) = ("acme".to_owned(), "train".to_owned(), "gateway".to_owned());
    Booking { id: id(number), holder, tenant, job, month: month("2026-11"), bytes, cost }
}

fn set(text: &str, limit: Option<&str>) -> Change {
    Change::Set { scope: scope(text), limit: limit.map(budget) }
}

fn settle(number: u64, bytes: u64, cost: Option<Money>) -> Change {
    Change::Settle { id: id(number), used: Used { bytes, cost } }
}

fn book_of(changes: &[Change]) -> BudgetBook {
    let mut book = BudgetBook::default();
    for change in changes {
        let _counted_or_not = book.apply(change).unwrap();
    }
    book
}

fn refusal(result: Result<(), BookError>) -> Refusal {
    match result {
        Err(BookError::Refused(refusal)) => *refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_budget_refuses_what_does_not_fit_and_says_why() {
    let mut book = book_of(&[set("acme", Some("100MiB"))]);
    for number in 0..8 {
        let asked = booking(number, 40 * MIB, None);
        match book.check(&asked) {
            Ok(()) => assert_eq!(book.apply(&Change::Book(asked)), Ok(Applied::Done)),
            refused => {
                let refusal = refusal(refused);
                assert_eq!(number >= 2, refusal.used == Budget::Bytes(80 * MIB));
                assert_eq!((refusal.limit, refusal.asked), (Budget::Bytes(100 * MIB), Budget::Bytes(40 * MIB)));
                assert_eq!(refusal.resets_at, month("2026-12").start_unix());
                let text = "the budget of acme refuses: 40MiB asked for, 80MiB of 100MiB used or booked in 2026-11; \
                            it starts anew on 2026-12-01 UTC, or `forebay egress budget set acme AMOUNT` raises it";
                assert_eq!(refusal.to_string(), text);
            }
        }
    }
    assert_eq!(book.open().count(), 2);
    // What was not used is there again, to the byte.
    assert_eq!(book.apply(&settle(0, MIB, None)), Ok(Applied::Done));
    assert_eq!(book.check(&booking(9, 59 * MIB, None)), Ok(()));
    assert!(book.check(&booking(9, 59 * MIB + 1, None)).is_err());
    assert!(book.check(&booking(9, u64::MAX, None)).is_err());
}

#[test]
fn a_budget_in_money_counts_the_cost() {
    let mut book = book_of(&[set("acme", Some("5.00USD"))]);
    // Ten cents ten times are one, exactly; and the sixth dollar does not fit.
    for number in 0..50 {
        let one = booking(number, 1, usd("0.10"));
        book.check(&one).unwrap();
        assert_eq!(book.apply(&Change::Book(one)), Ok(Applied::Done));
    }
    let refused = refusal(book.check(&booking(99, 1, usd("0.000000000000000001"))));
    assert_eq!((refused.used.to_string(), refused.limit.to_string()), ("5USD".to_owned(), "5USD".to_owned()));
    assert!(matches!(book.check(&booking(99, 1, None)), Err(BookError::NoPrice { .. })));
    let eur = Some(Money { currency: "EUR".parse().unwrap(), ..usd("1").unwrap() });
    assert!(matches!(book.check(&booking(99, 1, eur)), Err(BookError::OtherCurrency { .. })));
    assert_eq!(book.apply(&settle(0, 1, usd("0.04"))), Ok(Applied::Done));
    assert_eq!(book.check(&booking(99, 1, usd("0.06"))), Ok(()));
}

#[test]
fn tenants_without_a_budget_are_never_refused() {
    let book = book_of(&[set("other", Some("1B")), Change::Book(booking(1, u64::MAX / 2, None))]);
    assert_eq!(book.check(&booking(2, u64::MAX / 2, None)), Ok(()));
    // Except for what cannot be counted any more.
    assert!(matches!(book.check(&booking(2, u64::MAX, None)), Err(BookError::Money(_))));
    let taken_away = book_of(&[set("acme", Some("1B")), set("acme", None)]);
    assert_eq!(taken_away.check(&booking(2, 5, None)), Ok(()));
    assert_eq!(taken_away.budgets(month("2026-11")).count(), 0);
}

#[test]
fn a_job_has_a_budget_inside_its_tenants() {
    let book = book_of(&[set("acme", Some("100B")), set("acme/train", Some("60B"))]);
    assert_eq!(refusal(book.check(&booking(1, 61, None))).scope, scope("acme/train"));
    assert_eq!(refusal(book.check(&booking(1, 101, None))).scope, scope("acme"));
    let other_job = Booking { job: "serve".to_owned(), ..booking(1, 100, None) };
    assert_eq!(book.check(&other_job), Ok(()));
    let mut book = book_of(&[set("acme/train", Some("60B")), Change::Book(booking(1, 60, None))]);
    assert!(book.check(&booking(2, 1, None)).is_err());
    // A budget of a job that comes later counts from then on; what was booked before does not come back twice.
    assert_eq!(book.apply(&set("acme/serve", Some("5B"))), Ok(Applied::Done));
    assert_eq!(book.apply(&settle(1, 10, None)), Ok(Applied::Done));
    assert_eq!(book.standing(&scope("acme/train"), month("2026-11")).settled.bytes(), 10);
    assert_eq!(book.standing(&scope("acme"), month("2026-11")).settled.bytes(), 10);
}

#[test]
fn every_month_starts_anew() {
    let mut book = book_of(&[set("acme", Some("10B")), Change::Book(booking(1, 10, None))]);
    assert!(book.check(&booking(2, 1, None)).is_err());
    let next = Booking { month: month("2026-12"), ..booking(2, 10, None) };
    assert_eq!(book.check(&next), Ok(()));
    assert_eq!(book.apply(&Change::Book(next)), Ok(Applied::Done));
    // A booking counts for its own month, whenever it is settled.
    assert_eq!(book.apply(&settle(1, 4, None)), Ok(Applied::Done));
    let bytes = |text| {
        let standing = book.standing(&scope("acme"), month(text));
        (standing.settled.bytes(), standing.open.bytes())
    };
    assert_eq!([bytes("2026-11"), bytes("2026-12"), bytes("2027-01")], [(4, 0), (0, 10), (0, 0)]);
}

#[test]
fn settling_twice_or_the_unknown_changes_nothing() {
    let mut book = book_of(&[set("acme", Some("10B")), Change::Book(booking(1, 10, None)), settle(1, 4, None)]);
    let before = book.clone();
    assert_eq!(book.apply(&settle(1, 4, None)), Ok(Applied::NotOpen));
    assert_eq!(book.apply(&settle(7, 4, None)), Ok(Applied::NotOpen));
    assert_eq!(book, before);
    let _done = book.apply(&Change::Book(booking(2, 1, None))).unwrap();
    let before = book.clone();
    assert_eq!(book.apply(&Change::Book(booking(2, 5, None))), Ok(Applied::IdTaken));
    assert_eq!(book, before);
    assert!(matches!(book.check(&booking(2, 5, None)), Err(BookError::Inconsistent { .. })));
}

#[test]
fn sums_that_do_not_fit_change_nothing() {
    let mut book = book_of(&[Change::Book(booking(1, u64::MAX, None)), set("acme/train", Some("1B"))]);
    let before = book.clone();
    assert!(book.apply(&Change::Book(booking(2, 1, None))).is_err());
    assert_eq!(book, before);
    // A booking that came to more than was booked counts in full.
    assert_eq!(book.apply(&settle(1, 5, usd("79000000000"))), Ok(Applied::Done));
    let _done = book.apply(&Change::Book(booking(3, 1, None))).unwrap();
    let before = book.clone();
    assert!(book.apply(&settle(3, 1, usd("79000000000"))).is_err());
    assert_eq!(book, before);
}

#[test]
fn marks_are_reached_exactly() {
    let at = |limit: &str, bytes, cost| {
        book_of(&[set("acme", Some(limit)), Change::Book(booking(1, bytes, cost))])
            .standing(&scope("acme"), month("2026-11"))
    };
    assert!(at("10B", 5, None).has_reached(50) && !at("10B", 4, None).has_reached(50));
    assert!(at("18446744073709551615B", u64::MAX, None).has_reached(100));
    assert!(at("10USD", 1, usd("8")).has_reached(80) && !at("10USD", 1, usd("7.999")).has_reached(80));
    assert!(!BudgetBook::default().standing(&scope("acme"), month("2026-11")).has_reached(0));
    // Money that is not known does not count, and is told.
    assert_eq!((at("10USD", 7, None).unpriced_bytes(), at("10USD", 7, usd("1")).unpriced_bytes()), (7, 0));
}

/// What a gateway does next: books for one of two tenants, settles one of its own, or only reads along.
#[derive(Debug, Clone)]
enum Step {
    Book { tenant: &'static str, job: &'static str, bytes: u64, cents: i64 },
    Settle { which: Index, share: u64 },
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let book = (select(vec!["acme", "else"]), select(vec!["", "a"]), 0..60_u64, 0..60_i64)
        .prop_map(|(tenant, job, bytes, cents)| Step::Book { tenant, job, bytes, cents });
    let settle = (any::<Index>(), 0..=100_u64).prop_map(|(which, share)| Step::Settle { which, share });
    prop_oneof![3 => book, 2 => settle, 1 => Just(Step::Read)]
}

/// Gateways that append to one log and each know only so much of it.
struct Gateway {
    seen: usize,
    book: BudgetBook,
    held: Vec<Booking>,
}

impl Gateway {
    fn read(&mut self, log: &[Change]) {
        for change in &log[self.seen..] {
            let _counted_or_not = self.book.apply(change).unwrap();
        }
        self.seen = log.len();
    }

    /// One try to append: it fails if another change has this place already.
    fn append(&mut self, log: &mut Vec<Change>, change: Change) -> bool {
        if self.seen == log.len() {
            log.push(change);
            self.read(log);
            true
        } else {
            self.read(log);
            false
        }
    }

    fn act(&mut self, log: &mut Vec<Change>, step: &Step, number: u64) {
        match step {
            Step::Read => self.read(log),
            Step::Book { tenant, job, bytes, cents } => {
                let cost =
                    Some(Money { amount: rust_decimal::Decimal::new(*cents, 2), currency: "USD".parse().unwrap() });
                let (tenant, job) = ((*tenant).to_owned(), (*job).to_owned());
                let asked = Booking { tenant, job, ..booking(number, *bytes, cost) };
                // With an old view it may try what no longer fits: then the place is taken and it looks again.
                while self.book.check(&asked).is_ok() {
                    if self.append(log, Change::Book(asked.clone())) {
                        self.held.push(asked);
                        return;
                    }
                }
            }
            Step::Settle { which, share } => {
                if self.held.is_empty() {
                    return;
                }
                let booking = self.held.swap_remove(which.index(self.held.len()));
                let bytes = booking.bytes * share / 100;
                let cost = booking.cost.map(|cost| Money {
                    amount: cost.amount * rust_decimal::Decimal::new(i64::try_from(*share).unwrap(), 2),
                    ..cost
                });
                let change = Change::Settle { id: booking.id, used: Used { bytes, cost } };
                while !self.append(log, change.clone()) {}
            }
        }
    }
}

fn restored(book: &BudgetBook) -> BudgetBook {
    let accounts = book.accounts().map(|(scope, account)| {
        let months = account
            .settled()
            .map(|(month, tally)| (month, Tally::from_parts(tally.bytes(), tally.priced().copied()).unwrap()));
        (scope.clone(), account.limit, months.collect())
    });
    BudgetBook::restore(accounts.collect::<Vec<_>>(), book.open().cloned()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_interleaving_overspends(steps in vec((0..4_usize, step()), 0..80), job_limit in prop::option::of(0..200_u64)) {
        let mut log = vec![set("acme", Some("200B")), set("else", Some("1.5USD"))];
        log.extend(job_limit.map(|bytes| set("acme/a", Some(&format!("{bytes}B")))));
        let gateway = || Gateway { seen: 0, book: BudgetBook::default(), held: Vec::new() };
        let mut gateways = [gateway(), gateway(), gateway(), gateway()];
        for (number, (who, step)) in (0..).zip(&steps) {
            gateways[*who].act(&mut log, step, number);
            let book = book_of(&log);
            for standing in book.budgets(month("2026-11")) {
                let sum = standing.settled.plus(&standing.open).unwrap();
                let within = match (standing.limit.unwrap(), sum.in_terms_of(&standing.limit.unwrap())) {
                    (Budget::Bytes(limit), Budget::Bytes(sum)) => sum <= limit,
                    (Budget::Money(limit), Budget::Money(sum)) => sum.amount <= limit.amount,
                    _ => false,
                };
                prop_assert!(within, "{standing:?}");
            }
        }
        for gateway in &mut gateways {
            gateway.read(&log);
        }
        let book = book_of(&log);
        prop_assert!(gateways.iter().all(|gateway| gateway.book == book), "the same changes give the same book");
        prop_assert_eq!(&restored(&book), &book);
        // What is open is what the gateways hold: nothing was lost, nothing counts twice.
        let held: u64 = gateways.iter().flat_map(|gateway| &gateway.held).map(|booking| booking.bytes).sum();
        prop_assert_eq!(book.open().map(|one| one.booking.bytes).sum::<u64>(), held);
        let open = ["acme", "else"].map(|name| book.standing(&scope(name), month("2026-11")).open.bytes());
        prop_assert_eq!(open[0] + open[1], held);
    }

    #[test]
    fn the_order_of_settling_does_not_matter(
        asked in vec((0..1000_u64, 0..1000_i64), 1..12).prop_shuffle(),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let money = |cents| Some(Money { amount: rust_decimal::Decimal::new(cents, 2), currency: "USD".parse().unwrap() });
        let mut changes = vec![set("acme", Some("1GB")), set("acme/train", Some("1GB"))];
        for (number, (bytes, cents)) in (0..).zip(&asked) {
            changes.push(Change::Book(booking(number, *bytes, money(*cents))));
        }
        let settles = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut changes = changes.clone();
            for number in numbers.filter(|number| *number < asked.len()) {
                let (bytes, cents) = asked[number];
                changes.push(settle(number as u64, bytes / 2, money(cents / 3)));
            }
            book_of(&changes)
        };
        let (one, other) = (settles(&mut (0..12)), settles(&mut order.into_iter()));
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.open().count(), 0);
        prop_assert!(one.standing(&scope("acme"), month("2026-11")).open.is_empty());
    }
}

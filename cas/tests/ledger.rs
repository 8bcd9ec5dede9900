//! Budgets and ledgers on memory and on a folder: many writers at once, crashes, damage, answers that get lost.
#![allow(clippy::disallowed_methods, reason = "tests run real processes and read their environment")]

#[path = "ledger/lossy.rs"]
mod lossy;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use forebay_cas::budgets::{Booked, BudgetError, BudgetLedger, Budgets, Settled};
use forebay_cas::clock::Clock;
use forebay_cas::journal::{Journal, record_path};
use forebay_cas::ledger::{LedgerError, LedgerWriter, MANY, read_ledgers};
use forebay_cas::origin::Origin;
use forebay_cas::rng::Seed;
use forebay_cas::{Classify, Collected, ErrorClass, Surroundings, chain, task};
use forebay_format::{LedgerRecord, NodeKey, RepositoryId, Timestamp};
use forebay_policy::{Budget, Month, Price, Scope, Usage, UsageKey, UsageTable, Used};
use tokio::runtime::{Builder, Runtime};

use crate::lossy::Lossy;

const REPOSITORY: RepositoryId = RepositoryId::from_bytes([7; 16]);
const NODE: NodeKey = NodeKey::from_bytes([5; 32]);
const MIB: u64 = 1 << 20;
/// 2026-11-30T23:59:50Z
const BEFORE_MIDNIGHT: i64 = 1_796_083_190;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads can be started")
}

/// A clock that a test sets.
#[derive(Debug)]
struct Set(AtomicI64);

impl Set {
    fn to(seconds: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(seconds)))
    }
}

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Ordering::Relaxed), nanos: 0 }
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

fn around(runtime: &Runtime, seed: u64, clock: Arc<dyn Clock>) -> Surroundings {
    Surroundings {
        runtime: runtime.handle().clone(),
        clock,
        seed: Seed::fixed(seed),
        notices: Arc::new(Collected::default()),
        cache: std::path::PathBuf::new(),
        writer: format!("gateway-{seed}"),
        tool: "test".to_owned(),
    }
}

fn budgets(runtime: &Runtime, origin: &Arc<Origin>, seed: u64) -> Budgets {
    let around = around(runtime, seed, Set::to(BEFORE_MIDNIGHT));
    Budgets::open(Arc::clone(origin), REPOSITORY, format!("gateway-{seed}"), around).expect("the budgets can be read")
}

fn folder(path: &Path) -> Arc<Origin> {
    Arc::new(Origin::open(&path.join("repo").display().to_string(), &[]).expect("the URL is right"))
}

/// Memory, and a folder.
fn origins() -> Vec<(Arc<Origin>, tempfile::TempDir)> {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    vec![(folder(one.path()), one), (Arc::new(Origin::open("memory://", &[]).expect("the URL is right")), two)]
}

fn scope(text: &str) -> Scope {
    text.parse().expect("it is right")
}

fn key(tenant: &str) -> UsageKey {
    let (from, to) = ("origin:s3".to_owned(), "gateway".to_owned());
    UsageKey { tenant: tenant.to_owned(), tier: "10g".to_owned(), from, to, ..UsageKey::default() }
}

fn sent(bytes: u64) -> Usage {
    Usage { sent_bytes: bytes, requests: 1, ..Usage::default() }
}

fn month(text: &str) -> Month {
    text.parse().expect("it is right")
}

#[test]
fn one_budget_and_two_gateways() {
    // B35: 100 MiB; eight clients want 40 MiB each, four at each of two gateways, all at once.
    let runtime = runtime();
    for (origin, _folder) in origins() {
        let gateways = [budgets(&runtime, &origin, 1), budgets(&runtime, &origin, 2)];
        gateways[0].set(&scope("acme"), Some(Budget::Bytes(100 * MIB))).unwrap();
        let answers: Vec<Result<Booked, BudgetError>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8_usize)
                .map(|client| {
                    let gateway = &gateways[client % 2];
                    task::spawn_scoped(scope, "client", move || gateway.book("acme", "train", 40 * MIB, None))
                })
                .collect();
            clients.into_iter().map(task::join).collect()
        });
        let (booked, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!((booked.len(), refused.len()), (2, 6), "{}: exactly two fit", origin.url());
        for error in refused.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.class(), ErrorClass::Budget);
            let BudgetError::Refused(refusal) = error else { panic!("{error:?}") };
            assert_eq!((refusal.limit, refusal.asked), (Budget::Bytes(100 * MIB), Budget::Bytes(40 * MIB)));
            assert_eq!(refusal.used, Budget::Bytes(80 * MIB));
            assert_eq!(refusal.resets_at, month("2026-12").start_unix());
        }
        // Whoever holds them settles them; either gateway may.
        for (gateway, booked) in gateways.iter().rev().zip(booked.into_iter().map(Result::unwrap)) {
            assert_eq!(gateway.settle(&booked, 40 * MIB).unwrap(), Settled::Now);
            assert_eq!(gateway.settle(&booked, 40 * MIB).unwrap(), Settled::Before, "settling twice changes nothing");
        }
        for gateway in &gateways {
            let standing = gateway.list().unwrap().remove(0);
            assert_eq!((standing.settled.bytes(), standing.open.bytes()), (80 * MIB, 0));
            assert!(gateway.open_bookings().unwrap().is_empty());
        }
    }
}

#[test]
fn eight_appenders_lose_nothing_and_double_nothing() {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 16;
    let runtime = runtime();
    for (origin, _folder) in origins() {
        let all: Vec<Booked> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|seed| {
                    let budgets = budgets(&runtime, &origin, seed);
                    let book = move || {
                        let book = |round| budgets.book("acme", "", seed * 1000 + round, None).unwrap();
                        let booked: Vec<_> = (0..ROUNDS).map(book).collect();
                        let used = |one: &Booked| (one.booking.id, Used { bytes: 1, cost: None });
                        let settled: Vec<_> = booked.iter().step_by(2).map(used).collect();
                        assert_eq!(budgets.settle_all(&settled).unwrap(), []);
                        booked
                    };
                    task::spawn_scoped(scope, "writer", book)
                })
                .collect();
            writers.into_iter().flat_map(task::join).collect()
        });
        let cold = budgets(&runtime, &origin, 99);
        let open = cold.open_bookings().unwrap();
        assert_eq!(open.len() as u64, WRITERS * ROUNDS / 2, "{}", origin.url());
        assert!(open.iter().all(|one| all.iter().any(|booked| booked.booking == one.booking)));
        let standing = cold.standing(&scope("acme"));
        let expected: u64 =
            all.chunks(16).flat_map(|one| one.iter().skip(1).step_by(2)).map(|one| one.booking.bytes).sum();
        assert_eq!((standing.open.bytes(), standing.settled.bytes()), (expected, WRITERS * ROUNDS / 2));
        // 128 bookings and 8 settlements are 136 numbers, none left out and none twice; and a state sums the first 100 up.
        let listed = |folder: &str| runtime.block_on(origin.list(folder)).unwrap();
        let mut paths: Vec<_> = listed("ledger/budget").into_iter().map(|(path, _)| path).collect();
        paths.sort();
        let expected: Vec<_> = (1..=WRITERS * ROUNDS + WRITERS).map(record_path::<BudgetLedger>).collect();
        assert_eq!(paths, expected);
        assert_eq!(listed("ledger/budget.state").len(), 1);
        // A reader that starts from the state knows the same as one that read every record.
        runtime.block_on(async {
            let mut with = Journal::<BudgetLedger>::cold(Arc::clone(&origin), REPOSITORY);
            with.refresh().await.unwrap();
            origin.delete("ledger/budget.state/00000000000000000100").await.unwrap();
            let mut without = Journal::<BudgetLedger>::cold(Arc::clone(&origin), REPOSITORY);
            without.refresh().await.unwrap();
            assert_eq!(with.state(), without.state());
        });
    }
}

#[test]
fn a_budget_in_money_is_settled_at_the_price_it_was_booked_at() {
    let runtime = runtime();
    let (origin, _folder) = origins().remove(0);
    let budgets = budgets(&runtime, &origin, 1);
    let price: Price = "0.10 USD/GB".parse().unwrap();
    budgets.set(&scope("acme"), Some("1USD".parse().unwrap())).unwrap();
    let booked = budgets.book("acme", "", 10_000_000_000, Some(price)).unwrap();
    let error = budgets.book("acme", "", 1, Some(price)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Budget);
    assert!(chain(&error).contains("1USD of 1USD used"), "{}", chain(&error));
    assert_eq!(budgets.book("acme", "", 1, None).unwrap_err().class(), ErrorClass::Usage);
    assert_eq!(budgets.settle(&booked, 2_500_000_000).unwrap(), Settled::Now);
    let standing = budgets.list().unwrap().remove(0);
    assert_eq!(standing.settled.cost("USD".parse().unwrap()).to_string(), "0.25 USD");
    assert!(budgets.book("acme", "", 7_500_000_000, Some(price)).is_ok());
    for (tenant, job) in [("", "a"), ("a/b", ""), ("a", "x\n")] {
        assert_eq!(budgets.book(tenant, job, 1, None).unwrap_err().class(), ErrorClass::Usage, "{tenant:?}");
    }
    let most = "80000000000USD".parse().unwrap();
    assert_eq!(budgets.set(&scope("acme"), Some(most)).unwrap_err().class(), ErrorClass::Usage);
}

#[test]
fn a_budget_starts_anew_at_midnight_utc() {
    let runtime = runtime();
    let (origin, _folder) = origins().remove(0);
    let clock = Set::to(BEFORE_MIDNIGHT);
    let around = around(&runtime, 1, Arc::<Set>::clone(&clock));
    let budgets = Budgets::open(Arc::clone(&origin), REPOSITORY, "g".to_owned(), around.clone()).unwrap();
    let ledger = LedgerWriter::open(Arc::clone(&origin), REPOSITORY, NODE, around).unwrap();
    budgets.set(&scope("acme"), Some(Budget::Bytes(MIB))).unwrap();
    let booked = budgets.book("acme", "", MIB, None).unwrap();
    ledger.count(&key("acme"), sent(MIB)).unwrap();
    assert!(budgets.book("acme", "", 1, None).is_err());
    clock.0.store(BEFORE_MIDNIGHT + 9, Ordering::Relaxed);
    assert!(budgets.book("acme", "", 1, None).is_err());
    clock.0.store(BEFORE_MIDNIGHT + 10, Ordering::Relaxed);
    assert!(budgets.book("acme", "", MIB, None).is_ok(), "it is December");
    ledger.count(&key("acme"), sent(2 * MIB)).unwrap();
    assert!(budgets.book("acme", "", 1, None).is_err(), "it starts anew once");
    assert_eq!(budgets.settle(&booked, MIB).unwrap(), Settled::Now);
    assert_eq!(budgets.list().unwrap()[0].settled.bytes(), 0, "what was booked in November counts there");
    assert_eq!(ledger.flush().unwrap(), 2, "a record for each month");
    for (text, day, bytes) in [("2026-11", "2026-11-30", MIB), ("2026-12", "2026-12-01", 2 * MIB)] {
        let ledgers = read_ledgers(&origin, REPOSITORY, month(text), runtime.handle()).unwrap();
        let days = &ledgers.nodes[&NODE];
        assert_eq!(days.keys().map(ToString::to_string).collect::<Vec<_>>(), [day]);
        assert_eq!(days.values().next().unwrap().total().unwrap().sent_bytes, bytes);
    }
}

#[test]
fn every_byte_counted_is_in_the_ledger_once() {
    let runtime = runtime();
    for (origin, _folder) in origins() {
        let open = |seed, node| {
            let around = around(&runtime, seed, Set::to(BEFORE_MIDNIGHT));
            LedgerWriter::open(Arc::clone(&origin), REPOSITORY, node, around).unwrap()
        };
        // Two processes that both believe to be the node NODE, as when one is replaced, and another node.
        let writers = [open(1, NODE), open(2, NODE), open(3, NodeKey::from_bytes([6; 32]))];
        std::thread::scope(|scope| {
            for writer in &writers {
                for thread in 0..3_u64 {
                    task::spawn_scoped(scope, "writer", move || {
                        for round in 0..30 {
                            writer.count(&key(&format!("tenant-{}", round % 3)), sent(thread * 100 + 1)).unwrap();
                            if round % 5 == thread {
                                writer.flush().unwrap();
                            }
                        }
                    });
                }
            }
        });
        assert!(writers.iter().map(|writer| writer.flush().unwrap()).sum::<u64>() <= 3);
        assert!(writers.iter().all(|writer| writer.unflushed().unwrap().is_empty() && writer.flush().unwrap() == 0));
        let nodes = read_ledgers(&origin, REPOSITORY, month("2026-11"), runtime.handle()).unwrap().by_node().unwrap();
        let one_writer = 30 * (1 + 101 + 201);
        let totals: Vec<_> = nodes.values().map(|table| table.total().unwrap()).collect();
        let sums: Vec<_> = totals.iter().map(|usage| (usage.sent_bytes, usage.requests)).collect();
        assert_eq!(sums, [(2 * one_writer, 180), (one_writer, 90)], "{}", origin.url());
        assert_eq!(nodes[&NODE].len(), 3);
        let other = read_ledgers(&origin, REPOSITORY, month("2026-10"), runtime.handle()).unwrap();
        assert!(other.nodes.is_empty());
    }
}

#[test]
fn names_that_clients_make_up_do_not_fill_the_memory() {
    let runtime = runtime();
    let (origin, _folder) = origins().remove(1);
    let around = around(&runtime, 1, Set::to(BEFORE_MIDNIGHT));
    let writer = LedgerWriter::open(Arc::clone(&origin), REPOSITORY, NODE, around).unwrap();
    for number in 0..100_500 {
        writer.count(&UsageKey { job: format!("job-{number}"), ..key("acme") }, sent(1)).unwrap();
    }
    writer.count(&UsageKey { dataset: "é".repeat(200), ..key("acme") }, sent(1)).unwrap();
    let counted: UsageTable = writer.unflushed().unwrap();
    assert_eq!((counted.len(), counted.total().unwrap().sent_bytes), (100_001, 100_501));
    let many = UsageKey { job: MANY.to_owned(), dataset: MANY.to_owned(), ..key("acme") };
    assert!(counted.contains(&many));
    assert_eq!(writer.flush().unwrap(), 11);
    writer.count(&UsageKey { dataset: "é".repeat(200), ..key("acme") }, sent(1)).unwrap();
    writer.flush().unwrap();
    let nodes = read_ledgers(&origin, REPOSITORY, month("2026-11"), runtime.handle()).unwrap().by_node().unwrap();
    assert_eq!(nodes[&NODE].total().unwrap().sent_bytes, 100_502);
    assert!(nodes[&NODE].contains(&UsageKey { dataset: "é".repeat(127), ..key("acme") }), "cut between letters");
}

/// Tries until the line lets it through.
fn insist<T, E: std::fmt::Debug + Classify>(mut what: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..1000 {
        match what() {
            Err(error) if error.class() == ErrorClass::Net => {}
            other => return other.expect("nothing but the line is bad"),
        }
    }
    what().expect("one of a thousand tries comes through")
}

#[test]
fn answers_that_get_lost_lose_and_double_nothing() {
    let runtime = runtime();
    let seeds = if std::env::var_os("FOREBAY_SOAK").is_some() { 60 } else { 5 };
    for seed in 0..seeds {
        let store = Arc::new(Lossy::new(seed));
        let origin = Arc::new(Origin::new(Arc::<Lossy>::clone(&store), "lossy://".to_owned(), None));
        let around = |seed| around(&runtime, seed, Set::to(BEFORE_MIDNIGHT));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                insist(|| LedgerWriter::open(Arc::clone(&origin), REPOSITORY, NODE, around(seed * 10 + writer)))
            })
            .collect();
        for round in 0..30 {
            for writer in &writers {
                writer.count(&key("acme"), sent(1 << round)).unwrap();
                // A flush that failed is made good by a later one.
                let _written_or_kept = writer.flush();
            }
        }
        for writer in &writers {
            insist(|| writer.flush());
        }
        let open = |seed| {
            let around = around(seed);
            Budgets::open(Arc::clone(&origin), REPOSITORY, "g".to_owned(), around)
        };
        let gateways = [insist(|| open(seed * 10 + 3)), insist(|| open(seed * 10 + 4))];
        insist(|| gateways[0].set(&scope("acme"), Some(Budget::Bytes(1000))));
        let mut booked = Vec::new();
        let mut unknown = 0;
        for round in 0..40 {
            match gateways[round % 2].book("acme", "", 30, None) {
                Ok(one) => booked.push(one),
                Err(error) if error.class() == ErrorClass::Net => unknown += 1,
                Err(error) => assert_eq!(error.class(), ErrorClass::Budget, "seed {seed}: {error:?}"),
            }
        }
        let lost = runtime.block_on(store.heal());
        let total = read_ledgers(&origin, REPOSITORY, month("2026-11"), runtime.handle()).unwrap().by_node().unwrap();
        let total = total[&NODE].total().unwrap();
        assert_eq!((total.sent_bytes, total.requests), (2 * ((1 << 30) - 1), 60), "seed {seed}");
        let open = gateways[0].open_bookings().unwrap();
        assert!(open.len() <= 33, "never more than 1000 bytes");
        assert!(booked.iter().all(|one| open.iter().filter(|other| other.booking == one.booking).count() == 1));
        assert!(open.len() <= booked.len() + unknown);
        for one in &booked {
            assert_eq!(gateways[1].settle(one, 10).unwrap(), Settled::Now);
        }
        // What was booked without a gateway hearing of it is given back with its next call.
        for gateway in &gateways {
            assert_eq!(gateway.settle(&booked[0], 0).unwrap(), Settled::Before);
        }
        let standing = gateways[1].list().unwrap().remove(0);
        assert_eq!((standing.settled.bytes(), standing.open.bytes()), (10 * booked.len() as u64, 0), "seed {seed}");
        assert!(lost > 50);
    }
}

/// Files of a folder origin below a prefix.
fn files(folder: &Path, below: &str) -> Vec<std::path::PathBuf> {
    let listing = std::fs::read_dir(folder.join("repo").join(below)).expect("the folder is there");
    let mut files: Vec<_> = listing.map(|item| item.expect("the folder is there").path()).collect();
    files.sort();
    files
}

#[test]
fn a_damaged_or_missing_record_is_named_and_never_left_out() {
    let runtime = runtime();
    let (origin, folder) = origins().remove(0);
    let clock = || Set::to(BEFORE_MIDNIGHT);
    let gateway = budgets(&runtime, &origin, 1);
    let writer = LedgerWriter::open(Arc::clone(&origin), REPOSITORY, NODE, around(&runtime, 2, clock())).unwrap();
    gateway.set(&scope("acme"), Some(Budget::Bytes(100))).unwrap();
    for _ in 0..3 {
        let _booked = gateway.book("acme", "", 10, None).unwrap();
        writer.count(&key("acme"), sent(10)).unwrap();
        writer.flush().unwrap();
    }
    let open = || {
        let around = around(&runtime, 3, clock());
        Budgets::open(Arc::clone(&origin), REPOSITORY, "g".to_owned(), around).map(|budgets| budgets.list().unwrap())
    };
    let read = || read_ledgers(&origin, REPOSITORY, month("2026-11"), runtime.handle());
    let month_folder = LedgerRecord::folder(NODE, 202_611);
    let check = |path: &Path, is_budget: bool, what: &str| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (class, text) = if is_budget {
            let error = open().unwrap_err();
            (error.class(), chain(&error))
        } else {
            let error = read().unwrap_err();
            (error.class(), chain(&error))
        };
        assert_eq!(class, ErrorClass::Corrupt, "{what}: {text}");
        assert!(text.contains(&name), "{what}: {text} names {name}");
    };
    for below in ["ledger/budget", &month_folder] {
        let is_budget = below == "ledger/budget";
        let all = files(folder.path(), below);
        for path in &all {
            let good = std::fs::read(path).unwrap();
            for (what, bad) in [
                ("empty", Vec::new()),
                ("torn", good[..good.len() / 2].to_vec()),
                ("flipped", [&good[..40], &[good[40] ^ 1], &good[41..]].concat()),
                ("grown", [&good[..], &[0]].concat()),
                ("another's", std::fs::read(all.iter().find(|other| *other != path).unwrap()).unwrap()),
            ] {
                std::fs::write(path, bad).unwrap();
                check(path, is_budget, what);
            }
            std::fs::write(path, &good).unwrap();
        }
        // One that is lost in the middle looks like an end.
        for path in &all[..2] {
            let good = std::fs::read(path).unwrap();
            std::fs::remove_file(path).unwrap();
            check(path, is_budget, "missing");
            std::fs::write(path, good).unwrap();
        }
    }
    std::fs::write(folder.path().join("repo").join(&month_folder).join("7"), "a stranger").unwrap();
    assert!(matches!(read(), Err(LedgerError::Stranger { .. })));
    std::fs::remove_file(folder.path().join("repo").join(&month_folder).join("7")).unwrap();
    assert_eq!(read().unwrap().by_node().unwrap()[&NODE].total().unwrap().sent_bytes, 30);
    assert_eq!(open().unwrap()[0].open.bytes(), 30);
    // A gateway that runs on finds the damage before it books.
    let path = files(folder.path(), "ledger/budget").pop().unwrap();
    let other = budgets(&runtime, &origin, 4);
    let _booked = gateway.book("acme", "", 10, None).unwrap();
    let newest = files(folder.path(), "ledger/budget").pop().unwrap();
    assert_ne!(path, newest);
    std::fs::write(&newest, "torn").unwrap();
    assert_eq!(other.book("acme", "", 10, None).unwrap_err().class(), ErrorClass::Corrupt);
}

/// The child of the test below: books, says so, and waits to be killed.
#[test]
fn child_that_books() {
    let Some(repo) = std::env::var_os("FOREBAY_TEST_CHILD_REPO") else { return };
    let runtime = runtime();
    // Every process has names of its own.
    let around = Surroundings { seed: Seed::from_os(), ..around(&runtime, 1, Set::to(BEFORE_MIDNIGHT)) };
    let origin = folder(Path::new(&repo));
    let budgets = Budgets::open(origin, REPOSITORY, "gateway-1".to_owned(), around).unwrap();
    let booked = budgets.book("acme", "train", 40, None).unwrap();
    std::fs::write(Path::new(&repo).join("booked"), booked.booking.id.to_string()).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn what_a_killed_gateway_booked_stays_booked() {
    let runtime = runtime();
    let (origin, folder) = origins().remove(0);
    let gateway = budgets(&runtime, &origin, 2);
    gateway.set(&scope("acme"), Some(Budget::Bytes(100))).unwrap();
    for round in 1..=2 {
        let told = folder.path().join("booked");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_books", "--test-threads=1"])
            .env("FOREBAY_TEST_CHILD_REPO", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut waited = 0;
        while !std::fs::read_to_string(&told).is_ok_and(|id| id.len() == 32) {
            assert!(waited < 3000 && child.try_wait().unwrap().is_none(), "the child does not book");
            runtime.block_on(forebay_cas::clock::sleep(Duration::from_millis(10)));
            waited += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&told).unwrap();
        let open = gateway.open_bookings().unwrap();
        assert_eq!(open.len(), round, "round {round}");
        assert!(open.iter().all(|one| one.booking.holder == "gateway-1" && one.booking.bytes == 40));
    }
    let refused = gateway.book("acme", "train", 21, None).unwrap_err();
    assert_eq!(refused.class(), ErrorClass::Budget, "the crash has freed nothing");
    // Whoever comes after it settles what it finds.
    let open = gateway.open_bookings().unwrap();
    let settled = [(open[0].booking.id, Used { bytes: 3, cost: None })];
    assert_eq!(gateway.settle_all(&settled).unwrap(), []);
    assert_eq!(gateway.settle_all(&settled).unwrap(), [open[0].booking.id]);
    assert!(gateway.book("acme", "train", 57, None).is_ok());
    assert!(gateway.book("acme", "train", 1, None).is_err());
}

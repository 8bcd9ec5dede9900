//! `forebay egress`: reports, rate cards and budgets, on ledgers that a test writes as nodes would.

#![allow(clippy::disallowed_methods, reason = "the moment of a kill is measured in real time")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_format::{LedgerRecord, LedgerRow, LedgerUsage, NodeKey, Nonce, RepositoryConfig, RepositoryId, Timestamp};
use forebay_tests::{Action, Class, Rule, S3Server, Sandbox, field, files_below, text, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const GB: u64 = 1_000_000_000;
const CARD: &str = r#"
version = "2026-11"

[[route]]
from = "origin:*"
to = "gateway"
price = "0.09 USD/GB"

[[route]]
from = "gateway"
to = "site:*"
price = "0.02 USD/GiB"
last_day = "2026-11-15"

[[route]]
from = "gateway"
to = "site:*"
price = "0.01 USD/GiB"
first_day = "2026-11-16"
"#;

fn repository() -> (Sandbox, RepositoryId) {
    let sandbox = Sandbox::new();
    sandbox.run(["init"]).ok();
    let config = std::fs::read(sandbox.repo_dir().join("forebay.cbor")).expect("init makes it");
    let id = RepositoryConfig::decode(&config).expect("init makes it right").id;
    (sandbox, id)
}

fn row(day: u8, words: [&str; 7], counters: [u64; 6]) -> LedgerRow {
    let [tenant, job, dataset, class, tier, from, to] = words.map(str::to_owned);
    let [payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes] = counters;
    let usage = LedgerUsage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes };
    LedgerRow { day, tenant, job, dataset, class, tier, from, to, usage }
}

/// Writes a record as the node of this number would, and returns where it lies.
fn write(sandbox: &Sandbox, repository: RepositoryId, node: u8, place: (u32, u64), rows: Vec<LedgerRow>) -> PathBuf {
    let (month, sequence) = place;
    let mut record = LedgerRecord {
        repository,
        node: NodeKey::from_bytes([node; 32]),
        month,
        sequence,
        nonce: Nonce::from_bytes([9; 16]),
        time: Timestamp { seconds: 0, nanos: 0 },
        tool: "test".to_owned(),
        rows,
    };
    let bytes = record.encode();
    sandbox.write(Path::new("repo").join(record.path()), bytes)
}

/// Two nodes, two tenants, two months.
fn two_nodes() -> Sandbox {
    let (sandbox, id) = repository();
    let pull = ["acme", "train", "vision/set", "standard", "10g", "origin:s3", "gateway"];
    let serve = ["acme", "train", "vision/set", "standard", "10g", "gateway", "site:fra-1"];
    let other = ["else", "", "text", "prefetch", "40g", "gateway", "site:fra-1"];
    write(
        &sandbox,
        id,
        1,
        (202_611, 1),
        vec![
            row(1, pull, [10 * GB, 12 * GB, 13 * GB, 2 * GB, 30, 0]),
            row(15, serve, [1 << 30, 1 << 30, 2 << 30, 0, 5, 3 << 30]),
        ],
    );
    write(&sandbox, id, 1, (202_611, 2), vec![row(16, serve, [1 << 30, 1 << 30, 2 << 30, 0, 5, 0])]);
    write(&sandbox, id, 2, (202_611, 1), vec![row(30, other, [7, 7, 9, 0, 1, 0])]);
    write(&sandbox, id, 1, (202_612, 1), vec![row(1, pull, [GB, GB, GB, 0, 1, 0])]);
    sandbox
}

fn report(sandbox: &Sandbox, more: &[&str]) -> Value {
    sandbox.json([&["egress", "report"], more].concat()).ok().result()
}

#[test]
fn a_report_sums_up_by_whatever_is_asked() {
    let sandbox = two_nodes();
    let all = report(&sandbox, &["--month", "2026-11", "--by", "tenant,job,dataset,class,tier,from,to"]);
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), field(&all, "nodes")), (3, 2));
    assert_eq!(
        (&rows[0]["from"], &rows[1]["from"], &rows[2]["tenant"]),
        (&"gateway".into(), &"origin:s3".into(), &"else".into())
    );
    assert_eq!((field(&rows[0], "payload_bytes"), field(&rows[0], "avoided_bytes")), (2 << 30, 3 << 30));
    for name in ["payload_bytes", "sent_bytes", "wire_bytes", "retried_bytes", "requests", "avoided_bytes"] {
        let sum: u64 = rows.iter().map(|row| field(row, name)).sum();
        assert_eq!(sum, field(&all["totals"], name), "{name}");
    }
    assert!(all["totals"].get("cost").is_none(), "no rate card, no cost");
    let by_tenant = report(&sandbox, &["--month", "2026-11", "--by", "tenant"]);
    let tenants: Vec<_> = by_tenant["rows"].as_array().unwrap().iter().map(|row| &row["tenant"]).collect();
    assert_eq!(tenants, ["acme", "else"]);
    assert_eq!(by_tenant["totals"], all["totals"]);
    // Days add up to the month, and it is the same month in every time zone.
    for zone in ["Pacific/Kiritimati", "America/Los_Angeles", "Europe/Berlin"] {
        let command = sandbox.command(["egress", "report", "--month", "2026-11", "--by", "day"]).json().env("TZ", zone);
        let days = command.run().ok().result();
        let shown: Vec<_> = days["rows"].as_array().unwrap().iter().map(|row| &row["day"]).collect();
        assert_eq!(shown, ["2026-11-01", "2026-11-15", "2026-11-16", "2026-11-30"]);
        assert_eq!(days["totals"], all["totals"]);
    }
    assert_eq!(field(&report(&sandbox, &["--month", "2026-12"])["totals"], "sent_bytes"), GB);
    let none = report(&sandbox, &["--month", "2026-10"]);
    assert_eq!((none["rows"].as_array().unwrap().len(), field(&none["totals"], "requests")), (0, 0));
    for (option, value) in [("--month", "2026-13"), ("--by", "tenant,price"), ("--format", "focus")] {
        sandbox.run(["egress", "report", option, value]).ends(Class::Usage).says(value.split(',').next_back().unwrap());
    }
    sandbox.json(["egress", "report", "--format", "csv"]).ends(Class::Usage);
}

#[test]
fn costs_are_exact_and_each_day_has_its_own_price() {
    let mut sandbox = two_nodes();
    sandbox.write("card.toml", CARD);
    let priced = report(&sandbox, &["--month", "2026-11", "--by", "from", "--rates", "card.toml"]);
    let rows = priced["rows"].as_array().unwrap();
    // 12 GB at 0.09; 1 GiB at 0.02, 1 GiB and 7 bytes at 0.01; 3 GiB avoided at 0.02.
    assert_eq!((&rows[1]["cost"], &rows[1]["currency"]), (&"1.08".into(), &"USD".into()));
    assert_eq!(rows[0]["cost"], "0.03000000006519258");
    assert_eq!((&rows[0]["avoided_cost"], &rows[1]["avoided_cost"]), (&"0.06".into(), &"0".into()));
    assert_eq!(rows[0]["prices"], serde_json::json!(["0.02 USD/GiB", "0.01 USD/GiB"]));
    assert_eq!(priced["totals"]["cost"], "1.11000000006519258");
    assert_eq!((&priced["rates"]["version"], &priced["rates"]["file"]), (&"2026-11".into(), &"card.toml".into()));
    // The card can be a setting.
    sandbox.set_env("FOREBAY_RATES", sandbox.path("card.toml"));
    assert_eq!(report(&sandbox, &["--month", "2026-11"])["totals"], priced["totals"]);
    assert!(report(&sandbox, &["--month", "2026-11", "--rates", "none"])["totals"].get("cost").is_none());
    let shown = sandbox.run(["config", "show"]).ok();
    assert!(text(&shown.stdout).contains("card.toml  (environment (FOREBAY_RATES))"), "{shown:?}");
}

#[test]
fn gb_and_gib_are_different_and_a_way_without_a_price_is_not_free() {
    // B36
    let (sandbox, id) = repository();
    let bytes = 107_374_182_400;
    let way = |from, to| row(3, ["acme", "", "", "", "", from, to], [bytes, bytes, bytes, 0, 1, 0]);
    write(&sandbox, id, 1, (202_611, 1), vec![way("eu", "internet"), way("us", "eu")]);
    let route = |from: &str, to: &str, price: &str| {
        format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nprice = \"{price}\"\n")
    };
    let (eu, us) = (route("eu", "internet", "0.09 USD/GB"), route("us", "eu", "0.02 USD/GiB"));
    sandbox.write("card.toml", format!("version = \"1\"\n{eu}{us}"));
    let priced = report(&sandbox, &["--month", "2026-11", "--rates", "card.toml"]);
    let costs: Vec<_> = priced["rows"].as_array().unwrap().iter().map(|row| &row["cost"]).collect();
    assert_eq!(costs, ["9.663676416", "2"]);
    let shown = sandbox.run(["egress", "report", "--month", "2026-11", "--rates", "card.toml"]).ok();
    let lines: Vec<String> = text(&shown.stdout).lines().map(str::to_owned).collect();
    assert!(lines[2].contains("107.374182400") || lines[2].contains("107.3741824 "), "{shown:?}");
    assert!(lines[2].contains("9.663676416") && lines[2].ends_with("0.09 USD/GB"), "{shown:?}");
    assert!(lines[3].contains("2.000000000") && lines[3].ends_with("0.02 USD/GiB"), "{shown:?}");
    assert!(lines[4].starts_with("total") && lines[4].contains("11.663676416"), "{shown:?}");
    sandbox.write("half.toml", format!("version = \"1\"\n{us}"));
    let args = ["egress", "report", "--month", "2026-11", "--rates", "half.toml"];
    sandbox.run(args).ends(Class::Usage).says("no price for eu → internet").says("half.toml");
    let error = sandbox.json(args).ends(Class::Usage).error();
    assert_eq!((&error["way"], &error["day"]), (&"eu → internet".into(), &"2026-11-03".into()));
    sandbox.write("unit.toml", format!("version = \"1\"\n{us}{}", route("eu", "internet", "0.09 USD")));
    let args = ["egress", "report", "--month", "2026-11", "--rates", "unit.toml"];
    sandbox.run(args).ends(Class::Usage).says("route 2: price:").says("no unit");
}

#[test]
fn retries_are_paid_and_are_no_payload() {
    // B33, as far as arithmetic goes: ten ranges of 1 MiB, each reset, then cut after 512 KiB, then whole.
    let (sandbox, id) = repository();
    let way = ["acme", "", "set", "standard", "10g", "origin:http", "gateway"];
    for (number, counters) in (1..).zip([
        [0, 0, 0, 0, 10, 0],
        [0, 5 << 20, 5 << 20, 5 << 20, 10, 0],
        [10 << 20, 10 << 20, 11 << 20, 0, 10, 0],
    ]) {
        write(&sandbox, id, 1, (202_611, number), vec![row(7, way, counters)]);
    }
    let totals = report(&sandbox, &["--month", "2026-11"])["totals"].clone();
    assert_eq!((field(&totals, "payload_bytes"), field(&totals, "sent_bytes")), (10_485_760, 15_728_640));
    assert_eq!((field(&totals, "retried_bytes"), field(&totals, "wire_bytes")), (5 << 20, 16 << 20));
    assert_eq!(field(&totals, "requests"), 30);
}

#[test]
fn tables_and_csv_are_what_they_should_be() {
    let (sandbox, id) = repository();
    let odd = ["a,\"b\"\u{1b}[31m", "", "two\nlines", "", "", "gateway", "site:x"];
    write(&sandbox, id, 1, (202_611, 1), vec![row(1, odd, [1, 2, 3, 4, 5, 1_500_000_000])]);
    let table = sandbox.run(["egress", "report", "--month", "2026-11", "--by", "tenant,job,dataset"]).ok();
    let lines: Vec<String> = text(&table.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "a title, a header, one row, the total: {table:?}");
    assert!(lines[2].contains("  -    two\\nlines  ") && lines[2].ends_with(" 1.500"), "{table:?}");
    assert!(lines.iter().skip(1).all(|line| line.chars().count() == lines[1].chars().count()), "{table:?}");
    let args = ["egress", "report", "--month", "2026-11", "--by", "dataset,to", "--format", "csv"];
    let csv = sandbox.run(args).ok();
    let header = "dataset,to,payload_bytes,sent_bytes,wire_bytes,retried_bytes,requests,avoided_bytes\n";
    assert_eq!(text(&csv.stdout), format!("{header}\"two\nlines\",site:x,1,2,3,4,5,1500000000\n"));
    let args = ["egress", "report", "--month", "2026-11", "--format", "json"];
    let json: Value = serde_json::from_slice(&sandbox.run(args).ok().stdout).expect("one JSON object");
    assert_eq!(json, report(&sandbox, &["--month", "2026-11"]));
}

#[test]
fn rate_cards_are_checked() {
    let sandbox = Sandbox::new();
    sandbox.write("card.toml", CARD);
    let good = sandbox.json(["egress", "rates", "check", "card.toml"]).ok();
    assert_eq!(
        (good.num("routes"), good.str("currency"), good.str("version")),
        (3, "USD".to_owned(), "2026-11".to_owned())
    );
    let cases = [
        ("0.09 USD/GB", "0.09 USD/MB", "route 1: price:"),
        ("0.09 USD/GB", "0.09 EUR/GB", "route 2 (gateway → site:* until 2026-11-15) is in USD"),
        ("2026-11-16", "2026-11-15", "both hold on 2026-11-15"),
        ("2026-11-16", "2026-11-31", "route 3: first_day:"),
        ("to = \"gateway\"", "too = \"gateway\"", "route 1: too: is no field"),
        ("to = \"gateway\"", "", "route 1: to: is missing"),
        ("version = \"2026-11\"", "", "version: is missing"),
        ("[[route]]", "[[route]", "line 4"),
    ];
    for (from, to, says) in cases {
        sandbox.write("bad.toml", CARD.replacen(from, to, 1));
        sandbox.run(["egress", "rates", "check", "bad.toml"]).ends(Class::Usage).says(says).says("bad.toml");
    }
    sandbox.write("bad.toml", CARD.replace("0.09 USD/GB", "0.09 USD/MB"));
    let error = sandbox.json(["egress", "rates", "check", "bad.toml"]).ends(Class::Usage).error();
    assert_eq!((&error["entry"], &error["field"]), (&1.into(), &"price".into()));
    sandbox.run(["egress", "rates", "check", "none.toml"]).ends(Class::NotFound).says("none.toml");
    sandbox.write("bad.toml", b"version = \"\xff\"");
    sandbox.run(["egress", "rates", "check", "bad.toml"]).ends(Class::Usage);
}

#[test]
fn budgets_are_set_listed_and_taken_away() {
    let (sandbox, _) = repository();
    assert_eq!(sandbox.json(["egress", "budget", "ls"]).ok().num("budgets"), 0);
    let set = sandbox.json(["egress", "budget", "set", "acme", "100MiB"]).ok().result();
    assert_eq!((&set["scope"], &set["limit"], &set["previous"]), (&"acme".into(), &"100MiB".into(), &Value::Null));
    assert_eq!(
        (field(&set, "limit_bytes"), field(&set, "used_bytes"), field(&set, "reserved_bytes")),
        (100 << 20, 0, 0)
    );
    sandbox.run(["egress", "budget", "set", "acme/train", "25USD"]).ok();
    let again = sandbox.json(["egress", "budget", "set", "acme", "1.5TB"]).ok();
    assert_eq!(again.str("previous"), "100MiB");
    let listed = sandbox.json(["egress", "budget", "ls"]).ok();
    let entries = listed.entries();
    assert_eq!((listed.num("budgets"), entries.len()), (2, 2));
    assert_eq!((&entries[0]["limit"], &entries[1]["scope"]), (&"1500GB".into(), &"acme/train".into()));
    assert_eq!((&entries[1]["limit_cost"], &entries[1]["used_cost"]), (&"25".into(), &"0".into()));
    let resets = entries[0]["resets_at"].as_str().unwrap();
    assert!(resets.ends_with("-01T00:00:00Z"), "{resets}");
    let shown = text(&sandbox.run(["egress", "budget", "ls"]).ok().stdout).clone();
    assert!(shown.contains("acme/train") && shown.contains("25USD") && shown.contains("1500GB"), "{shown}");
    sandbox.run(["egress", "budget", "rm", "acme/train"]).ok();
    sandbox.run(["egress", "budget", "rm", "acme/train"]).ends(Class::NotFound);
    assert_eq!(sandbox.json(["egress", "budget", "ls"]).ok().num("budgets"), 1);
    for (scope, amount) in [
        ("acme", "100"),
        ("acme", "25"),
        ("acme", "100gb"),
        ("acme", "-5USD"),
        ("acme", "5usd"),
        ("acme", "90000000000USD"),
        ("", "5USD"),
        ("/x", "5USD"),
        ("x/", "5USD"),
    ] {
        sandbox.run(["egress", "budget", "set", scope, "--", amount]).ends(Class::Usage);
    }
    assert_eq!(sandbox.json(["egress", "budget", "ls"]).ok().num("budgets"), 1);
}

#[test]
fn without_a_repository_there_is_nothing_to_report_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    for args in [&["egress", "report"][..], &["egress", "budget", "ls"], &["egress", "budget", "set", "acme", "5USD"]] {
        sandbox.run(args).ends(Class::NotFound);
        sandbox.json(args).ends(Class::NotFound);
    }
    assert!(!sandbox.repo_dir().exists());
}

#[test]
fn damaged_records_are_named_and_never_left_out() {
    let sandbox = two_nodes();
    sandbox.run(["egress", "budget", "set", "acme", "100MiB"]).ok();
    sandbox.run(["egress", "budget", "set", "acme", "90MiB"]).ok();
    sandbox.run(["egress", "budget", "set", "acme", "80MiB"]).ok();
    let ledger = files_below(sandbox.repo_dir().join("ledger"));
    assert_eq!(ledger.len(), 7, "{ledger:?}");
    for path in ledger {
        let (name, is_budget) = (
            path.strip_prefix(sandbox.repo_dir()).unwrap().display().to_string(),
            path.to_string_lossy().contains("budget"),
        );
        let month = if name.contains("2026-12") { "2026-12" } else { "2026-11" };
        let args: &[&str] =
            if is_budget { &["egress", "budget", "ls"] } else { &["egress", "report", "--month", month] };
        let good = std::fs::read(&path).unwrap();
        for bad in [good[..good.len() / 2].to_vec(), Vec::new(), [&good[..], b"x"].concat(), vec![0; good.len()]] {
            std::fs::write(&path, bad).unwrap();
            sandbox.run(args).ends(Class::Corrupt).says(&name);
            sandbox.json(args).ends(Class::Corrupt);
        }
        std::fs::remove_file(&path).unwrap();
        // What comes last may never have been there.
        if name.ends_with("budget/00000000000000000001")
            || name.ends_with("budget/00000000000000000002")
            || (name.contains(&"01".repeat(32)) && name.ends_with("2026-11/00000000000000000001"))
        {
            sandbox.run(args).ends(Class::Corrupt).says(&name).says("missing");
        }
        std::fs::write(&path, good).unwrap();
        sandbox.run(args).ok();
    }
}

#[test]
fn sixteen_set_budgets_at_once_and_none_is_lost() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    sandbox.run(["init"]).ok();
    let set = |number: usize| {
        ["egress".to_owned(), "budget".to_owned(), "set".to_owned(), format!("t{number}"), format!("{}GB", number + 1)]
    };
    let running: Vec<_> = (0..16).map(|number| sandbox.command(set(number)).start()).collect();
    for run in running {
        run.wait().ok();
    }
    let records = |server: &S3Server| server.objects().keys().filter(|key| key.contains("ledger/budget/")).count();
    assert_eq!((records(&server), sandbox.json(["egress", "budget", "ls"]).ok().num("budgets")), (16, 16));
    // An answer that gets lost counts once.
    server.rule(Rule::new("ledger/budget/", Action::StatusAfterCommit(500)).method("PUT").numbers(0..1));
    sandbox.run(["egress", "budget", "set", "t0", "7GB"]).ok();
    server.clear_rules();
    assert_eq!(records(&server), 17, "neither lost nor doubled");
    let first = sandbox.json(["egress", "budget", "ls"]).ok().entries().remove(0);
    assert_eq!(first["limit"], "7GB");
    server.rule(Rule::new("", Action::Status(503)));
    sandbox.run(["egress", "budget", "ls"]).ends(Class::Net);
}

#[test]
fn a_killed_writer_leaves_budgets_whole() {
    let (sandbox, _) = repository();
    for round in 0..12_u64 {
        let mut running = sandbox.command(["egress", "budget", "set", "acme", &format!("{}GB", round + 1)]).start();
        let started = std::time::Instant::now();
        wait_until("the moment to kill it", Duration::from_secs(5), || {
            started.elapsed() >= Duration::from_millis(round * 4) || !running.is_running()
        });
        running.signal(Signal::KILL);
        let _killed_or_done = running.wait();
        let listed = sandbox.json(["egress", "budget", "ls"]).ok().entries();
        assert!(listed.len() <= 1 && listed.iter().all(|one| one["limit"].as_str().unwrap().ends_with("GB")));
    }
}

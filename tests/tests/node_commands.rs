//! Asking a node how it is, filling it ahead, and making it leave.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::time::Duration;

use forebay_tests::{Class, Outcome, Sandbox, Serving, assert_tree_equal, tree_of, wait_until, write_rnd};

const MIB: usize = 1 << 20;

/// A large file, small ones in folders.
fn pushed(len: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("source/large"), 1, len);
    for number in 0..30 {
        let folder = sandbox.mkdir(format!("source/{}", number % 7));
        write_rnd(folder.join(number.to_string()), 100 + number, 9_000);
    }
    sandbox.json(["push", "source", "set"]).ok();
    sandbox
}

fn through(sandbox: &Sandbox, node: &str, args: &[&str]) -> Outcome {
    let command = sandbox.command(args.iter().copied()).json().env("FOREBAY_REPO", "/nowhere/at/all");
    command.env("FOREBAY_NODES", node).run()
}

fn from(outcome: &Outcome, place: &str) -> u64 {
    outcome.result()["from"][place].as_u64().unwrap()
}

#[test]
fn a_node_says_how_it_is() {
    let sandbox = pushed(MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &["--provider", "own"]);
    let edge = Serving::edge(&sandbox, "fra", &gateway, &["--capacity", "64MiB", "--rate", "500MB"]);
    through(&sandbox, &edge.addr(), &["fetch", "set", "dest"]).ok();
    let status = sandbox.json(["node", "status", &edge.addr()]).ok().result();
    assert_eq!((&status["role"], &status["site"]), (&"edge".into(), &"fra".into()));
    assert_eq!(status["node_id"], edge.id());
    assert_eq!(status["cache"]["capacity_bytes"], 64 * MIB);
    assert!(status["cache"]["used_bytes"].as_u64().unwrap() >= MIB as u64, "{status}");
    assert_eq!((&status["draining"], &status["rate_bytes_per_s"]), (&false.into(), &500_000_000.into()));
    assert_eq!(status["tiers"]["10g"]["rate_cap_bytes_per_s"], 1_250_000_000);
    assert_eq!(status["tiers"]["100g"]["rate_cap_bytes_per_s"], 12_500_000_000_u64);
    let status = sandbox.json(["node", "status", &gateway.addr()]).ok().result();
    assert_eq!((&status["role"], &status["provider"]), (&"gateway".into(), &"own".into()));
    assert_eq!(status["repository"].as_str().unwrap().len(), 32, "{status}");
    let shown = sandbox.run(["node", "status", &edge.addr()]).ok();
    for word in ["edge", "fra", "cache", "10g", "40g", "100g"] {
        assert!(String::from_utf8_lossy(&shown.stdout).contains(word), "it does not show {word}");
    }
}

#[test]
fn a_node_that_is_not_there_or_not_it_is_told_apart() {
    let sandbox = pushed(1000);
    let (gateway, other) = (Serving::gateway(&sandbox, "a", &[]), Serving::gateway(&sandbox, "b", &[]));
    let wrong = format!("{}@{}", other.id(), gateway.listen());
    sandbox.run(["node", "status", &wrong]).ends(Class::Auth).says(gateway.listen());
    let addr = other.addr();
    other.kill();
    sandbox.run(["node", "status", &addr]).ends(Class::Net).says(&addr);
    sandbox.run(["node", "status", "127.0.0.1:1"]).ends(Class::Usage).says("NODE_ID@");
    // A gateway with a list of clients tells strangers nothing.
    fs::write(sandbox.path("clients"), "# nobody\n").unwrap();
    let clients = sandbox.path("clients").display().to_string();
    let closed = Serving::gateway(&sandbox, "closed", &["--clients", &clients]);
    sandbox.run(["node", "status", &closed.addr()]).ends(Class::Auth).says("not known");
    let own = sandbox.path("closed.key").display().to_string();
    sandbox.run(["node", "status", &closed.addr(), "--identity", &own]).ok();
}

#[test]
fn what_was_warmed_needs_nothing_over_the_uplink() {
    let sandbox = pushed(9 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edges = ["one", "two"].map(|name| Serving::edge(&sandbox, name, &gateway, &["--capacity", "64MiB"]));
    let nodes = format!("{},{}", edges[0].addr(), edges[1].addr());
    let bytes = sandbox.json(["ls", "set"]).ok().num("bytes");
    through(&sandbox, &nodes, &["warm", "set", "--replicas", "3"]).ends(Class::Usage).says("--replicas 3");
    through(&sandbox, &nodes, &["warm", "none"]).ends(Class::NotFound).says("none");
    let one = through(&sandbox, &nodes, &["warm", "set", "--replicas", "1"]).ok();
    assert_eq!((one.num("bytes"), one.num("replicas")), (bytes, 1));
    assert!(one.num("bytes_moved") >= bytes, "{one:?}");
    assert_eq!(edges[1].status()["cache"]["entries"], 0, "the second was not asked");
    let both = through(&sandbox, &nodes, &["warm", "set"]).ok();
    assert_eq!(both.num("replicas"), 2);
    assert_eq!(both.num("bytes_moved"), one.num("bytes_moved"), "the first had everything");
    let sent = |gateway: &Serving| -> u64 {
        let text = gateway.http("/metrics");
        let line = text.lines().find(|line| line.starts_with("forebay_sent_bytes_total{from=\"gateway\"}")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let before = sent(&gateway);
    for (number, edge) in edges.iter().enumerate() {
        let dest = format!("dest{number}");
        let fetched = through(&sandbox, &edge.addr(), &["fetch", "set", &dest]).ok();
        assert_eq!((from(&fetched, "gateway"), from(&fetched, "site")), (0, fetched.num("payload_bytes")));
        assert_tree_equal(&tree_of(sandbox.path(&dest)), &tree_of(sandbox.path("source")));
    }
    assert_eq!(sent(&gateway), before, "neither data nor manifest crossed again");
    sandbox.run(["warm", "set"]).ends(Class::Usage).says("--node");
}

#[test]
fn what_does_not_fit_or_is_not_paid_is_no_success() {
    let sandbox = pushed(9 * MIB);
    sandbox.run(["egress", "budget", "set", "poor", "1MB"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", "4MiB"]);
    through(&sandbox, &edge.addr(), &["warm", "set", "--tenant", "poor"]).ends(Class::Budget).says("poor");
    through(&sandbox, &edge.addr(), &["warm", "set"]).ends(Class::Space).says("--capacity");
    through(&sandbox, &gateway.addr(), &["warm", "set"]).ends(Class::Usage).says("gateway");
}

#[test]
fn a_node_leaves_under_load_and_nobody_notices() {
    let sandbox = pushed(24 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let slow = ["--capacity", "64MiB", "--rate", "8MB"];
    let edges = ["one", "two"].map(|name| Serving::edge(&sandbox, name, &gateway, &slow));
    let [one, two] = edges;
    let nodes = format!("{},{}", one.addr(), two.addr());
    // Strangers do not make a node leave.
    sandbox.run(["node", "drain", &one.addr()]).ends(Class::Auth).says("--identity");
    let fetching = sandbox.command(["fetch", "set", "dest"]).json().env("FOREBAY_NODES", &nodes).start();
    wait_until("the first node has work", Duration::from_secs(20), || {
        one.http("/metrics").contains("forebay_sent_bytes_total{from=\"gateway\"}")
    });
    let own = sandbox.path("one.key").display().to_string();
    let drained = sandbox.json(["node", "drain", &one.addr(), "--within", "20s", "--identity", &own]).ok();
    assert_eq!(drained.str("node_id"), one.id());
    one.wait().ok();
    assert!(fs::read_to_string(sandbox.path("one.jsonl")).unwrap().contains("\"drained\":true"));
    fetching.wait().ok();
    assert_tree_equal(&tree_of(sandbox.path("dest")), &tree_of(sandbox.path("source")));
    assert!(two.http("/metrics").contains("forebay_sent_bytes_total"), "the second took over");
    sandbox.run(["node", "drain", &two.addr(), "--within", "soon"]).ends(Class::Usage).says("--within");
}

//! B12: a cold crowd asks the origin once.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;

use forebay_tests::{
    Action, Outcome, Rule, Running, S3Server, Sandbox, Serving, assert_tree_equal, field, rnd, soak, tree_of, write_rnd,
};

/// Pack, first byte, byte after the last, status.
type Range = (String, u64, u64, u16);

fn fetch(sandbox: &Sandbox, node: &str, number: usize) -> Running {
    let command = sandbox.command(["fetch", "set", &format!("D{number}")]).json().limit_s(300);
    let command = command.env("FOREBAY_REPO", "/nowhere/at/all").env("FOREBAY_NODES", node);
    let command = command.env("FOREBAY_IDENTITY", sandbox.path(format!("c{number}.key")));
    command.env("FOREBAY_CACHE", sandbox.path(format!("c{number}"))).start()
}

/// All clients at once, on an edge that has nothing.
fn crowd(sandbox: &Sandbox, clients: usize) -> (Vec<Outcome>, Serving) {
    let gateway = Serving::gateway(sandbox, "gateway", &[]);
    let edge = Serving::edge(sandbox, "edge", &gateway, &["--capacity", "1GB"]);
    let crowd: Vec<Running> = (0..clients).map(|number| fetch(sandbox, &edge.addr(), number)).collect();
    let outcomes = crowd.into_iter().map(|running| running.wait().ok()).collect();
    let source = tree_of(sandbox.path("S"));
    for number in 0..clients {
        assert_tree_equal(&tree_of(sandbox.path(format!("D{number}"))), &source);
    }
    (outcomes, gateway)
}

/// What was asked of packs, sorted.
fn ranges(server: &S3Server) -> Vec<Range> {
    let log = server.log();
    let packs = log.iter().filter(|request| request.method == "GET" && request.key.contains("pack/"));
    let mut ranges: Vec<Range> = packs
        .map(|request| {
            let range = request.range.as_deref().expect("packs are read in ranges");
            let (start, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (request.key.clone(), start.parse().unwrap(), last.parse::<u64>().unwrap() + 1, request.status)
        })
        .collect();
    ranges.sort();
    ranges
}

/// Bytes that were sent more than once.
fn doubled(ranges: &[Range]) -> u64 {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let sent = ranges.iter().filter(|(.., status)| *status == 206);
    sent.map(|(pack, start, end, _)| {
        let before = ends.entry(pack).or_default();
        let again = end.min(before).saturating_sub(*start);
        *before = (*before).max(*end);
        again
    })
    .sum()
}

fn crossed(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| outcome.result()["from"]["gateway"].as_u64().unwrap()).sum()
}

/// One random file of 64 MiB. With `fails`, the first range of its data and that of the manifest fail once each.
fn one_file(clients: usize, fails: bool) {
    const FILE_BYTES: usize = 64 << 20;
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "crowd");
    write_rnd(sandbox.path("S/file"), 12, FILE_BYTES);
    sandbox.json(["push", "S", "set"]).ok();
    let packs = server.objects().into_iter().filter(|(key, _)| key.contains("pack/"));
    let (data, _) = packs.max_by_key(|(_, len)| *len).expect("a push makes packs");
    server.clear_log();
    if fails {
        server.rule(Rule::new("pack/", Action::Status(500)).method("GET").numbers(0..1));
        server.rule(Rule::new(&data, Action::Status(500)).method("GET").numbers(0..1));
    }
    let (outcomes, gateway) = crowd(&sandbox, clients);
    let bytes = FILE_BYTES as u64;
    assert!(crossed(&outcomes) * 100 <= bytes * 101, "{} crossed the uplink", crossed(&outcomes));
    let ranges = ranges(&server);
    assert_eq!(doubled(&ranges), 0, "{ranges:?}");
    let failed: Vec<&Range> = ranges.iter().filter(|(.., status)| *status == 500).collect();
    assert_eq!(failed.len(), if fails { 2 } else { 0 });
    for (pack, start, end, _) in failed {
        let tries = ranges.iter().filter(|range| (&range.0, range.1, range.2) == (pack, *start, *end));
        assert_eq!(tries.count(), 2, "what failed is asked for once more: {ranges:?}");
    }
    let read = server.sent_bytes("pack/");
    assert!(read * 100 <= bytes * 101, "the origin sent {read} bytes");
    assert_eq!(field(&gateway.status(), "origin_read_bytes"), server.sent_bytes(""), "the meter and the origin's log");
    gateway.stop();
}

#[test]
fn eight_clients_at_once_read_the_origin_once() {
    one_file(8, false);
}

#[test]
fn a_range_that_fails_once_is_read_once_more() {
    one_file(8, true);
}

/// The numbers of the case's page.
#[test]
fn thirty_two_clients_at_once() {
    if soak() {
        one_file(32, false);
        one_file(32, true);
    }
}

/// Frames of small files lie so close that a reader takes those between its own along.
#[test]
fn small_files_in_a_crowd() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "crowd");
    write_rnd(sandbox.path("S/large"), 1, 24 << 20);
    for number in 0..20 {
        sandbox.write(format!("S/below/small-{number}"), rnd(100 + number, 7000));
    }
    sandbox.json(["push", "S", "set"]).ok();
    let bytes = sandbox.json(["ls", "set"]).ok().num("bytes");
    server.clear_log();
    let (outcomes, _gateway) = crowd(&sandbox, 8);
    assert!(crossed(&outcomes) * 100 <= bytes * 101, "{} crossed the uplink", crossed(&outcomes));
    let ranges = ranges(&server);
    assert_eq!(doubled(&ranges), 0, "{ranges:?}");
    let read = server.sent_bytes("pack/");
    assert!(read * 100 <= bytes * 101, "the origin sent {read} bytes for {bytes}");
}

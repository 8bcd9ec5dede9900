//! B33: what is paid and what arrived are different figures where requests are tried again.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;

use forebay_tests::{Action, Rule, S3Server, Sandbox, Serving, assert_tree_equal, client, field, rnd, tree_of};

const RANGES: u64 = 10;
const RANGE_BYTES: usize = 1 << 20;

fn packs(server: &S3Server) -> BTreeSet<String> {
    server.objects().into_keys().filter(|key| key.contains("pack/")).collect()
}

#[test]
fn retries_are_paid_and_are_no_payload() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "retries");
    // A push each, so that each file is a range of a pack of its own.
    let mut data = Vec::new();
    for number in 0..RANGES {
        let before = packs(&server);
        sandbox.write(format!("S{number}/file"), rnd(number, RANGE_BYTES));
        sandbox.json(["push", &format!("S{number}"), &format!("set{number}")]).ok();
        let of_push = packs(&server).into_iter().filter(|pack| !before.contains(pack));
        data.extend(of_push.filter(|pack| server.object(pack).is_some_and(|pack| pack.len() >= RANGE_BYTES)));
    }
    assert_eq!(data.len() as u64, RANGES);
    sandbox.json(["egress", "budget", "set", "acme", "100MiB"]).ok();
    server.clear_log();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    for pack in &data {
        server.rule(Rule::new(pack, Action::CutAfter(0)).method("GET").numbers(0..1));
        server.rule(Rule::new(pack, Action::CutAfter(512 << 10)).method("GET").numbers(1..2));
    }
    let mut payload = 0;
    for number in 0..RANGES {
        let (set, dest) = (format!("set{number}"), format!("D{number}"));
        let fetched = client(&sandbox, "job", &edge.addr(), &["--tenant", "acme", "fetch", &set, &dest]).run().ok();
        payload += fetched.num("payload_bytes");
        assert_tree_equal(&tree_of(sandbox.path(dest)), &tree_of(sandbox.path(format!("S{number}"))));
    }
    assert_eq!(payload, RANGES * RANGE_BYTES as u64, "what arrived, whatever was tried again");

    let log = server.log();
    let tries = |pack: &String| log.iter().filter(|request| request.method == "GET" && request.key == *pack).count();
    for pack in &data {
        assert!(tries(pack) >= 3, "{} tries of {pack}", tries(pack));
    }
    let egress = server.sent_bytes("");
    let metered = field(&gateway.status(), "origin_read_bytes");
    println!("payload {payload}, origin sent {egress} in {} requests, metered {metered}", log.len());
    assert_eq!(metered, egress, "the meter and the origin's log");
    gateway.stop();
    let report = sandbox.json(["egress", "report", "--by", "tenant"]).ok().result();
    let row = report["rows"].as_array().unwrap().iter().find(|row| row["tenant"] == "acme").unwrap().clone();
    let budget = sandbox.json(["egress", "budget", "ls"]).ok().entries().remove(0);
    println!("{row}\n{budget}");
    assert_eq!(field(&budget, "used_bytes"), field(&row, "sent_bytes"), "a budget is charged what leaves the gateway");
    assert_eq!(field(&budget, "reserved_bytes"), 0);
    assert!(field(&row, "sent_bytes") > payload, "frames have headers");
}

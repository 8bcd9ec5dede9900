//! Reading through nodes: who is asked how often, what survives a kill, what is refused.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_tests::{
    Class, Mounted, Running, S3Server, Sandbox, Serving, assert_tree_equal, bytes_of, field, rnd, skipped, tree_of,
    wait_until, write_rnd,
};
use rustix::process::Signal;

const MIB: usize = 1 << 20;

/// A sandbox with a pushed folder: a large file, small ones, a link.
fn pushed(len: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    fill(&sandbox, len);
    sandbox
}

fn fill(sandbox: &Sandbox, len: usize) {
    let source = sandbox.mkdir("source/below");
    write_rnd(sandbox.path("source/large"), 1, len);
    for number in 0..20 {
        fs::write(source.join(format!("small-{number}")), rnd(100 + number, 7000)).unwrap();
    }
    std::os::unix::fs::symlink("large", sandbox.path("source/link")).unwrap();
    sandbox.json(["push", "source", "set"]).ok();
}

/// A client that has no repository: only the node.
fn client(sandbox: &Sandbox, name: &str, node: &str, args: &[&str]) -> Running {
    let key = sandbox.path(format!("{name}.key"));
    let command = sandbox.command(args.iter().copied()).json().env("FOREBAY_REPO", "/nowhere/at/all");
    command.env("FOREBAY_NODES", node).env("FOREBAY_IDENTITY", key).env("FOREBAY_CACHE", sandbox.path(name)).start()
}

fn from(outcome: &forebay_tests::Outcome, place: &str) -> u64 {
    outcome.result()["from"][place].as_u64().expect("a place of bytes")
}

#[test]
fn b12_a_cold_crowd_crosses_the_uplink_once() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "crowd");
    fill(&sandbox, 24 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", "1GB"]);
    let bytes = sandbox.json(["ls", "set"]).ok().num("bytes");
    server.clear_log();
    let crowd: Vec<Running> = (0..8)
        .map(|n| client(&sandbox, &format!("c{n}"), &edge.addr(), &["fetch", "set", &format!("dest{n}")]))
        .collect();
    let outcomes: Vec<_> = crowd.into_iter().map(|running| running.wait().ok()).collect();
    let crossed: u64 = outcomes.iter().map(|outcome| from(outcome, "gateway")).sum();
    assert!(crossed * 100 <= bytes * 101, "{crossed} of {bytes}");
    for n in 0..8 {
        assert_tree_equal(&tree_of(sandbox.path("source")), &tree_of(sandbox.path(format!("dest{n}"))));
    }
    let read = server.sent_bytes("pack/");
    assert!(read * 100 <= bytes * 101, "the origin sent {read} for {bytes}");
    let metered = field(&gateway.status(), "origin_read_bytes");
    assert!(metered >= read, "the gateway metered {metered} of {read}");
    let second = client(&sandbox, "later", &edge.addr(), &["fetch", "set", "later.dest"]).wait().ok();
    assert_eq!((from(&second, "gateway"), from(&second, "origin")), (0, 0));
    assert!(from(&second, "site") >= bytes - 200_000, "all but inline files come from the site");
    assert!(edge.http("/metrics").contains("forebay_cache_entries"));
    gateway.stop();
    let report = sandbox.json(["egress", "report"]).ok().result();
    let total = |counter: &str| report["totals"][counter].as_u64().unwrap();
    assert!(total("avoided_bytes") >= bytes - 200_000, "what the second client did not move: {report}");
    assert!(total("sent_bytes") * 100 <= bytes * 102 && total("sent_bytes") <= total("wire_bytes"), "{report}");
}

#[test]
fn everything_that_reads_needs_no_more_than_a_node() {
    let sandbox = pushed(3 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    let first = client(&sandbox, "one", &edge.addr(), &["ls", "set"]).wait().ok();
    assert!(first.warnings().iter().any(|warning| warning["kind"] == "unpinned-gateway"));
    let again = client(&sandbox, "one", &edge.addr(), &["ls", "-R", "set@1"]).wait().ok();
    assert!(again.warnings().is_empty() && again.num("files") == 21);
    client(&sandbox, "one", &edge.addr(), &["fetch", "none", "d"]).wait().ends(Class::NotFound).says("none");
    client(&sandbox, "one", &edge.addr(), &["fetch", "set@9", "d"]).wait().ends(Class::NotFound);
    let direct = sandbox.command(["fetch", "--direct", "set", "direct"]).json().env("FOREBAY_NODES", edge.addr()).run();
    assert!(from(&direct.ok(), "origin") > 0);
    client(&sandbox, "one", "127.0.0.1:1", &["ls", "set"]).wait().ends(Class::Usage);
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let mut mounting = Sandbox::new();
    mounting.set_repo("/nowhere/at/all");
    mounting.set_env("FOREBAY_NODES", edge.addr());
    let mounted = Mounted::new(&mounting, "set", "mnt", &[]);
    assert_tree_equal(&tree_of(sandbox.path("source")), &tree_of(mounted.dir()));
    mounted.umount().ok();
}

#[test]
fn a_damaged_cache_is_a_miss_that_heals() {
    let sandbox = pushed(4 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    client(&sandbox, "one", &edge.addr(), &["fetch", "set", "one.dest"]).wait().ok();
    let folder = Serving::cache_dir(&sandbox, "edge").join("edge/extents");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = bytes_of(&path);
        // Far from any header, so that only the content says that it is wrong.
        (0..bytes.len()).skip(3000).step_by(64 << 10).for_each(|at| bytes[at] ^= 1);
        fs::write(&path, bytes).unwrap();
    }
    let second = client(&sandbox, "two", &edge.addr(), &["fetch", "set", "two.dest"]).wait().ok();
    assert_tree_equal(&tree_of(sandbox.path("source")), &tree_of(sandbox.path("two.dest")));
    assert!(from(&second, "gateway") > 0, "what was damaged came anew");
    assert!(field(&edge.status()["cache"], "discarded") > 0);
    let third = client(&sandbox, "three", &edge.addr(), &["fetch", "set", "three.dest"]).wait().ok();
    assert_eq!(from(&third, "gateway"), 0, "it has healed");
}

#[test]
fn b17_a_silent_node_costs_one_stall_and_without_another_is_named() {
    let sandbox = pushed(8 * MIB);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let mut silent = Serving::edge(&sandbox, "silent", &gateway, &[]);
    let good = Serving::edge(&sandbox, "good", &gateway, &[]);
    let both = format!("{},{}", silent.addr(), good.addr());
    client(&sandbox, "one", &both, &["ls", "set"]).wait().ok();
    silent.signal(Signal::STOP);
    let started = Instant::now();
    client(&sandbox, "one", &both, &["fetch", "set", "one.dest"]).wait().ok();
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_tree_equal(&tree_of(sandbox.path("source")), &tree_of(sandbox.path("one.dest")));
    let started = Instant::now();
    let alone = client(&sandbox, "one", &silent.addr(), &["fetch", "set", "two.dest"]).wait().ends(Class::Net);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    alone.says(silent.listen());
    silent.signal(Signal::CONT);
}

#[test]
fn keys_that_are_not_what_they_should_be_are_refused() {
    let sandbox = pushed(MIB);
    let clients = sandbox.write("clients", "# nobody yet\n");
    let gateway = Serving::gateway(&sandbox, "gateway", &["--clients", clients.to_str().unwrap()]);
    let refused = client(&sandbox, "one", &gateway.addr(), &["fetch", "set", "d"]).wait().ends(Class::Auth);
    refused.says("is not known here");
    let key = fs::read_to_string(sandbox.path("one.key.pub")).unwrap();
    fs::write(&clients, format!("{} acme\n", key.trim())).unwrap();
    gateway.stop();
    let gateway = Serving::gateway(&sandbox, "gateway", &["--clients", clients.to_str().unwrap()]);
    client(&sandbox, "one", &gateway.addr(), &["--tenant", "other", "fetch", "set", "d"]).wait().ends(Class::Auth);
    client(&sandbox, "one", &gateway.addr(), &["--tenant", "acme", "fetch", "set", "d"]).wait().ok();
    // Another key at the same place.
    let other = format!("{}@{}", "ab".repeat(32), gateway.listen());
    client(&sandbox, "one", &other, &["--tenant", "acme", "fetch", "set", "e"]).wait().ends(Class::Auth);
    assert!(!Path::new(&sandbox.path("e")).join("large").exists());
}

#[test]
fn a_node_that_turns_a_ref_back_is_not_believed() {
    let sandbox = pushed(MIB);
    let old = sandbox.path("old");
    copy_folder(&sandbox.repo_dir(), &old);
    fs::write(sandbox.path("source/more"), "more").unwrap();
    sandbox.json(["push", "source", "set"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let listen = gateway.listen().to_owned();
    client(&sandbox, "one", &gateway.addr(), &["fetch", "set", "d"]).wait().ok();
    gateway.stop();
    let mut back = Sandbox::new();
    back.set_repo(&old);
    fs::copy(sandbox.path("gateway.key"), back.path("gateway.key")).unwrap();
    let gateway = Serving::gateway(&back, "gateway", &["--listen", &listen]);
    let refused = client(&sandbox, "one", &gateway.addr(), &["fetch", "set", "e"]).wait().ends(Class::Auth);
    refused.says("turns it back");
    client(&sandbox, "new", &gateway.addr(), &["fetch", "set", "e"]).wait().ok();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn b35_one_budget_holds_over_two_edges_and_a_killed_gateway() {
    let sandbox = Sandbox::new();
    for number in 0..8 {
        write_rnd(sandbox.mkdir(format!("s{number}")).join("file"), number, 4 * MIB);
        sandbox.json(["push", &format!("s{number}"), &format!("set{number}")]).ok();
    }
    sandbox.json(["egress", "budget", "set", "acme", "10MiB"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edges = [Serving::edge(&sandbox, "e0", &gateway, &[]), Serving::edge(&sandbox, "e1", &gateway, &[])];
    let crowd: Vec<Running> = (0..8)
        .map(|n| {
            let (set, dest) = (format!("set{n}"), format!("d{n}"));
            let args = ["--tenant", "acme", "fetch", &set, &dest];
            client(&sandbox, &format!("c{n}"), &edges[n % 2].addr(), &args)
        })
        .collect();
    let outcomes: Vec<_> =
        crowd.into_iter().map(|running| running.wait().ends_in_one_of(&[Class::Ok, Class::Budget])).collect();
    let served = outcomes.iter().filter(|outcome| outcome.code() == 0).count();
    assert_eq!(served, 2, "two of 4 MiB fit into 10 MiB");
    for (n, outcome) in outcomes.iter().enumerate().filter(|(_, outcome)| outcome.code() != 0) {
        assert!(!sandbox.path(format!("d{n}/file")).exists(), "refused ones have got nothing");
        let message = outcome.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("acme") && message.contains("10"), "{message}");
    }
    gateway.kill();
    // What was spent stays spent: 8 of 10 MiB, and straight from the gateway every fetch of 4 MiB has to be paid.
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let args = ["--tenant", "acme", "fetch", "set7", "after"];
    client(&sandbox, "again", &gateway.addr(), &args).wait().ends(Class::Budget);
    client(&sandbox, "rich", &gateway.addr(), &["--tenant", "other", "fetch", "set6", "free"]).wait().ok();
    gateway.stop();
    let budgets = sandbox.run(["egress", "budget", "ls"]).ok();
    assert!(budgets.said().contains("acme"), "{budgets:?}");
    // What a kill left uncounted was booked; what this gateway sent is in the ledger to the byte.
    let report = sandbox.json(["egress", "report", "--by", "tenant"]).ok();
    let report = report.result();
    let rows = report["rows"].as_array().expect("a report has rows");
    let other = rows.iter().find(|row| row["tenant"] == "other");
    let payload = other.expect("the tenant has a row")["payload_bytes"].as_u64().unwrap();
    assert!(payload >= 4 * MIB as u64 && payload < 4 * MIB as u64 + 200_000, "{payload}");
}

#[test]
fn a_signed_checkpoint_is_restored_through_an_edge() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.mkdir("ckpt").join("weights.bin"), 3, 5 * MIB);
    sandbox.run(["key", "generate", "trainer.key"]).ok();
    sandbox.run(["key", "generate", "stranger.key"]).ok();
    sandbox.json(["checkpoint", "save", "ckpt", "run/a", "--step", "100", "--sign", "trainer.key"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    let restore = |keys: &str, dest: &str| {
        let (keys, dest) = (sandbox.path(keys), sandbox.path(dest));
        let (keys, dest) = (keys.to_str().unwrap(), dest.to_str().unwrap());
        client(
            &sandbox,
            "job",
            &edge.addr(),
            &["checkpoint", "restore", "run/a@latest", dest, "--require-signature", keys],
        )
        .wait()
    };
    restore("stranger.key.pub", "no").ends(Class::Auth);
    assert!(!sandbox.path("no").join("weights.bin").exists());
    let restored = restore("trainer.key.pub", "yes").ok();
    assert_eq!(restored.num("step"), 100);
    assert_tree_equal(&tree_of(sandbox.path("ckpt")), &tree_of(sandbox.path("yes")));
    let staged =
        client(&sandbox, "job", &edge.addr(), &["checkpoint", "stage", "run/a@100", "--device", "host"]).wait().ok();
    assert_eq!((staged.num("bytes"), staged.result()["verified"].as_bool()), (5 * MIB as u64, Some(true)));
    wait_until("the edge lets go of clients that are done", Duration::from_secs(20), || {
        field(&edge.status(), "connections") == 0
    });
}

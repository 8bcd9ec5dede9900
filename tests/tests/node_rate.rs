//! How fast nodes send: never faster than they may, and a slow node is no dead one.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]

use std::time::{Duration, Instant};

use forebay_tests::{Class, Sandbox, Serving, assert_tree_equal, tree_of, write_rnd};

#[test]
fn an_edge_with_a_rate_is_slow_and_whole_and_says_so_when_it_could_never_send() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("source/file"), 1, 12 << 20);
    sandbox.json(["push", "source", "set"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    // 12 MiB less a burst of 1 MiB, over gateway and edge: no less than 2.8 s each, at the same time.
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--rate", "4MB"]);
    let started = Instant::now();
    let node = edge.addr();
    let crowd = ["a", "b"].map(|tenant| {
        let args = ["fetch", "set", tenant, "--node", &node, "--tenant", tenant, "--tier", "100g"];
        sandbox.command(args).json().start()
    });
    for one in crowd {
        let outcome = one.wait().ok();
        assert_eq!(outcome.num("retried_bytes"), 0, "nobody took it for dead");
    }
    // Both together: 24 MiB less one burst.
    let least = Duration::from_millis((23 << 20) / 4_000);
    assert!(started.elapsed() >= least, "took {:?}, and must take {least:?}", started.elapsed());
    for tenant in ["a", "b"] {
        assert_tree_equal(&tree_of(sandbox.path(tenant)), &tree_of(sandbox.path("source")));
    }
    sandbox.run(["node", "--role", "gateway", "--rate", "0"]).ends(Class::Usage).says("--rate 0");
}

//! What nodes and clients need of memory does not grow with what they move.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use forebay_tests::{Sandbox, Serving, client, soak, write_rnd_file};

/// 1 GiB with 512 MiB in the long form; a quarter of the bytes, which must fit well into half of it, in the short one.
#[test]
fn moving_much_takes_little_memory() {
    let (bytes, limit): (u64, u64) = if soak() { (1 << 30, 512 << 20) } else { (256 << 20, 256 << 20) };
    let sandbox = Sandbox::new();
    sandbox.mkdir("S");
    write_rnd_file(sandbox.path("S/file"), 4, bytes);
    sandbox.command(["push", "S", "set"]).json().limit_s(600).run().ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", "2GB"]);
    let fetch = |name: &str| {
        let dest = format!("{name}.D");
        let outcome = client(&sandbox, name, &edge.addr(), &["fetch", "set", &dest]).limit_s(600).run().ok();
        assert_eq!(outcome.num("bytes"), bytes);
        std::fs::remove_dir_all(sandbox.path(dest)).unwrap();
        outcome.peak_rss_bytes
    };
    // Through the uplink, then out of the cache.
    let clients = fetch("cold").max(fetch("warm"));
    for (who, peak) in [("client", clients), ("edge", edge.peak_rss_bytes()), ("gateway", gateway.peak_rss_bytes())] {
        println!("{who}: {} MiB for {} MiB moved", peak >> 20, bytes >> 20);
        assert!(peak > 0 && peak < limit, "{who}: {} MiB", peak >> 20);
    }
}

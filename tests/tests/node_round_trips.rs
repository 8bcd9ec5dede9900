//! What a distance costs: a manifest is read level by level, not folder by folder.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use forebay_tests::{Sandbox, Serving, assert_tree_equal, tree_of};

fn requests(sandbox: &Sandbox, tenant: &str) -> u64 {
    let report = sandbox.json(["egress", "report", "--by", "tenant"]).ok();
    let rows = report.result()["rows"].as_array().unwrap().clone();
    rows.iter().filter(|row| row["tenant"] == tenant).map(|row| row["requests"].as_u64().unwrap()).sum()
}

#[test]
fn four_hundred_folders_take_a_request_a_level() {
    let sandbox = Sandbox::new();
    for number in 0..400 {
        let folder = sandbox.mkdir(format!("source/{}/{}", number % 20, number));
        fs::write(folder.join("name"), number.to_string()).unwrap();
    }
    sandbox.json(["push", "source", "set"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let node = gateway.addr();
    let fetch = |args: &[&str], dest: &str| {
        let common = ["fetch", "set", dest, "--node", &node, "--tenant", "fetcher"];
        sandbox.run(common.into_iter().chain(args.iter().copied())).ok();
    };
    fetch(&[], "dest");
    assert_tree_equal(&tree_of(sandbox.path("dest")), &tree_of(sandbox.path("source")));
    sandbox.run(["ls", "set", "-R", "--node", &node, "--tenant", "lister"]).ok();
    gateway.stop();
    // The snapshot, the root, 20 folders, 400 folders; file contents stand in the manifest.
    assert_eq!(requests(&sandbox, "fetcher"), 4);
    assert!(requests(&sandbox, "lister") <= 4);
}

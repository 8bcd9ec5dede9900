//! Every command ends right with 256 descriptors.

use forebay_tests::{Sandbox, assert_tree_equal, rnd, tree_of};

#[test]
fn every_command_works_with_256_descriptors() {
    let sandbox = Sandbox::new();
    for folder in 0..300 {
        for file in 0..10 {
            sandbox.write(format!("S/{folder:03}/{file}"), rnd(folder * 10 + file, 5_000));
        }
    }
    let limited = |args: &[&str]| sandbox.command(args).prelude("ulimit -n 256").run().ok();
    limited(&["push", "S", "r", "--threads", "16"]);
    // Sixty packs and segments of small pushes.
    for number in 0..60 {
        sandbox.write("T/x", rnd(90_000 + number, 6_000));
        limited(&["push", "T", &format!("small/{number}")]);
    }
    sandbox.forget_cache();
    for args in [
        &["fetch", "r", "D", "--threads", "16"][..],
        &["fetch", "r", "D"],
        &["push", "S", "r"],
        &["refs"],
        &["log", "r"],
        &["ls", "-R", "r"],
        &["cat", "r:000/0"],
        &["diff", "r", "small/0"],
        &["verify", "--threads", "16"],
        &["verify", "r", "--threads", "16"],
        &["du"],
        &["rm", "small/1"],
        &["config", "show"],
        &["push", "S", "r", "--dry-run"],
        &["fetch", "--delete", "r", "D", "--threads", "16"],
        &["ls", "-l", "r:000"],
        &["log", "small/59"],
        &["init", "--repo", "second"],
        &["push", "S", "r", "--repo", "second", "--threads", "16"],
        &["fetch", "r", "E", "--repo", "second", "--threads", "16"],
        &["completions", "zsh"],
        &["man", "pages"],
        &["--version"],
    ] {
        let command = sandbox.command(args).prelude("ulimit -n 256");
        if args[0] == "cat" {
            command.binary_stdout().run().ok()
        } else {
            command.run().ok()
        };
    }
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    assert_tree_equal(&tree_of(sandbox.path("E")), &tree_of(sandbox.path("S")));
    let refs = sandbox.command(["refs"]).json().prelude("ulimit -n 256").run().ok();
    assert_eq!(refs.num("refs"), 60, "r and sixty small ones, of which one was removed");
    for number in [0_u64, 31, 59] {
        let place = format!("small/{number}:x");
        let read = sandbox.command(["cat", &place]).prelude("ulimit -n 256").binary_stdout().run().ok();
        assert_eq!(read.stdout, rnd(90_000 + number, 6_000));
    }
}

#[test]
fn commands_work_beside_each_other() {
    // One process holds the index; the others read beside it and keep what they add in memory.
    let sandbox = Sandbox::new();
    for number in 0..8 {
        sandbox.write(format!("S{number}/noise"), rnd(number, 3_000_000));
        sandbox.write(format!("S{number}/shared"), rnd(100, 1_000_000));
    }
    sandbox.run(["init"]).ok();
    let running: Vec<_> =
        (0..8).map(|number| sandbox.command(["push", &format!("S{number}"), &format!("r/{number}")]).start()).collect();
    for run in running {
        run.wait().ok();
    }
    let fetching: Vec<_> = (0..8)
        .map(|number| sandbox.command(["fetch", &format!("r/{number}"), &format!("D{number}")]).start())
        .collect();
    for run in fetching {
        run.wait().ok();
    }
    for number in 0..8 {
        assert_tree_equal(&tree_of(sandbox.path(format!("D{number}"))), &tree_of(sandbox.path(format!("S{number}"))));
    }
    sandbox.run(["verify"]).ok();
}

//! A source that changes under a push: nothing half-read is stored in silence.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_tests::{
    Action, Class, Outcome, Rule, S3Server, Sandbox, assert_tree_equal, raw_path, tree_of, wait_until, write_rnd_file,
};

/// More than two packs on their way and a third one being filled.
const HELD_BYTES: u64 = 300_000_000;

/// Names of the files that warnings of `kind` speak of, without their folders.
fn warned_names(outcome: &Outcome, kind: &str) -> Vec<String> {
    let warnings = outcome.warnings();
    let paths = warnings.iter().filter(|warning| warning["kind"] == kind).filter_map(raw_path);
    paths.map(|path| String::from_utf8_lossy(&path).rsplit('/').next().unwrap_or_default().to_owned()).collect()
}

/// Pushes while `S/busy` grows without a pause.
fn push_while_it_grows(sandbox: &Sandbox, args: &[&str]) -> Outcome {
    let mut busy = File::options().append(true).open(sandbox.path("S/busy")).expect("the file is there");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                busy.write_all(b"more").expect("the file grows");
            }
        });
        let outcome = sandbox.json(args);
        done.store(true, Ordering::Relaxed);
        outcome
    })
}

#[test]
fn a_file_that_grows_is_partial_unless_that_is_fine() {
    let sandbox = Sandbox::new();
    write_rnd_file(sandbox.path("S/busy"), 1, 40_000_000);
    sandbox.write("S/quiet", "quiet");
    let refused = push_while_it_grows(&sandbox, &["push", "S", "r"]).ends(Class::Partial);
    let error = refused.error();
    assert_eq!((&error["changed"], &error["vanished"]), (&1.into(), &0.into()));
    assert!(error["message"].as_str().unwrap().contains("--allow-changed"), "{error}");
    assert_eq!(warned_names(&refused, "changed"), ["busy"]);
    sandbox.run(["log", "r"]).ends(Class::NotFound);

    let allowed = push_while_it_grows(&sandbox, &["push", "S", "r", "--allow-changed"]).ok();
    assert_eq!((allowed.num("changed"), allowed.num("vanished"), allowed.num("files")), (1, 0, 2));
    assert_eq!(warned_names(&allowed, "changed"), ["busy"]);
    sandbox.run(["fetch", "r", "D"]).ok();
    let (stored, source) = (fs::read(sandbox.path("D/busy")).unwrap(), fs::read(sandbox.path("S/busy")).unwrap());
    assert!(stored.len() > 40_000_000 && source.starts_with(&stored), "what was read is a part of the file");
    assert_eq!(fs::read(sandbox.path("D/quiet")).unwrap(), b"quiet");

    // A file that was stored half-way is not taken for known.
    assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("changed"), 0);
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

/// Pushes `S` and calls `meddle` when it was listed and its last files were not yet read.
fn push_and_meddle(args: &[&str], meddle: impl FnOnce(&Sandbox)) -> (S3Server, Sandbox, Outcome) {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    write_rnd_file(sandbox.path("S/a-large"), 7, HELD_BYTES);
    sandbox.write("S/kept", vec![1; 10_000]);
    sandbox.write("S/y", vec![2; 10_000]);
    sandbox.write("S/z", vec![3; 10_000]);
    server.rule(Rule::new("pack/", Action::Delay(Duration::from_secs(2))).method("PUT").numbers(0..2));
    let running = sandbox.command(args).json().start();
    wait_until("the first pack is on its way", Duration::from_secs(30), || {
        server.log().iter().any(|request| request.method == "PUT" && request.key.contains("pack/"))
    });
    meddle(&sandbox);
    let outcome = running.wait();
    server.clear_rules();
    (server, sandbox, outcome)
}

#[test]
fn files_that_vanish_are_partial_and_named() {
    let (_server, sandbox, outcome) = push_and_meddle(&["push", "S", "r", "--threads", "1"], |sandbox| {
        fs::remove_file(sandbox.path("S/y")).unwrap();
        fs::remove_file(sandbox.path("S/z")).unwrap();
    });
    let refused = outcome.ends(Class::Partial);
    assert_eq!((&refused.error()["changed"], &refused.error()["vanished"]), (&0.into(), &2.into()));
    assert_eq!(warned_names(&refused, "vanished"), ["y", "z"]);
    sandbox.run(["log", "r"]).ends(Class::NotFound);
    let again = sandbox.json(["push", "S", "r"]).ok();
    assert_eq!((again.num("files"), again.num("vanished")), (2, 0));
    assert!(again.num("new_bytes") < HELD_BYTES / 2, "what was sent is not sent again: {}", again.num("new_bytes"));
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn vanished_files_are_left_out_when_that_is_fine() {
    let args = ["push", "S", "r", "--threads", "1", "--allow-changed"];
    let (_server, sandbox, outcome) = push_and_meddle(&args, |sandbox| {
        fs::remove_file(sandbox.path("S/y")).unwrap();
        // A pipe in the place of a file is not waited for.
        fs::remove_file(sandbox.path("S/z")).unwrap();
        forebay_tests::make_fifo(sandbox.path("S/z"));
    });
    let pushed = outcome.ok();
    assert_eq!((pushed.num("files"), pushed.num("changed"), pushed.num("vanished")), (2, 0, 2));
    assert_eq!(sandbox.json(["ls", "r"]).ok().listed_paths(), [&b"a-large"[..], b"kept"]);
    sandbox.run(["verify", "r"]).ok();
}

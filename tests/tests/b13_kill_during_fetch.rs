//! B13: kill -9 in the middle of a fetch, then run it again.

use std::time::Duration;

use forebay_tests::{Class, S3Server, Sandbox, Seeded, assert_tree_equal, files_below, rnd, tree_of, wait_until};
use rustix::process::Signal;

const FILES: u64 = 5;
const FILE_BYTES: usize = 41_943_040;
const RATE: u64 = 20 << 20;
/// What a run may read again: pieces on their way when it was killed.
const AGAIN_BYTES: u64 = 8 << 20;

fn pushed(server: &S3Server) -> Sandbox {
    let sandbox = Sandbox::with_s3(server, "repo");
    for number in 0..FILES {
        sandbox.write(format!("S/{number}.bin"), rnd(number, FILE_BYTES));
    }
    sandbox.run(["push", "S", "r"]).ok();
    sandbox
}

/// Every file under its final name is the file.
fn finished_files_are_right(sandbox: &Sandbox) {
    for number in 0..FILES {
        let path = sandbox.path(format!("D/{number}.bin"));
        if path.exists() {
            assert!(
                std::fs::read(path).is_ok_and(|found| found == rnd(number, FILE_BYTES)),
                "{number}.bin is not whole"
            );
        }
    }
}

fn partial_files(sandbox: &Sandbox) -> usize {
    files_below(sandbox.path("D")).iter().filter(|path| path.to_string_lossy().contains(".partial")).count()
}

#[test]
fn a_killed_fetch_goes_on_where_it_was() {
    let server = S3Server::start();
    let sandbox = pushed(&server);
    server.set_download_rate(Some(RATE));
    let total = FILES * FILE_BYTES as u64;
    let mut random = Seeded::new(13);
    let mut received = 0;
    for round in 1..=5 {
        server.clear_log();
        let until = (8 << 20) + random.below(24 << 20);
        let mut running = sandbox.command(["fetch", "r", "D"]).start();
        wait_until("some bytes have come", Duration::from_secs(30), || server.sent_bytes("pack/") > until);
        running.signal(Signal::KILL);
        running.wait();
        received += server.sent_bytes("pack/");
        finished_files_are_right(&sandbox);
        let offline = sandbox.json(["fetch", "--offline", "r", "D"]).ends(Class::NotFound);
        assert!(offline.error()["missing_files"].as_u64().unwrap() >= 1, "round {round}: {}", offline.error());
    }
    server.clear_log();
    let last = sandbox.json(["fetch", "r", "D"]).ok();
    let sent = server.sent_bytes("pack/");
    assert!(received + sent <= total + 6 * AGAIN_BYTES, "{received} before, {sent} at the end, {total} in all");
    assert!(last.num("payload_bytes") < total - received + 6 * AGAIN_BYTES);
    assert_eq!(partial_files(&sandbox), 0);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    server.clear_log();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_eq!(server.sent_bytes("pack/") / (1 << 20), 0, "a second fetch moves nothing but the manifest");
}

#[test]
fn two_fetches_into_one_folder_do_not_spoil_each_other() {
    let server = S3Server::start();
    let sandbox = pushed(&server);
    server.set_download_rate(Some(4 * RATE));
    let one = sandbox.command(["fetch", "r", "D"]).start();
    let other = sandbox.command(["fetch", "r", "D"]).start();
    let codes = [one.wait(), other.wait()].map(|outcome| outcome.ends_in_one_of(&[Class::Ok, Class::Conflict]).code());
    assert!(codes.contains(&0), "{codes:?}");
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    assert_eq!(partial_files(&sandbox), 0);
}

#[test]
fn what_another_version_left_unfinished_is_swept() {
    let server = S3Server::start();
    let sandbox = pushed(&server);
    server.set_download_rate(Some(RATE));
    let mut running = sandbox.command(["fetch", "r", "D"]).start();
    wait_until("some bytes have come", Duration::from_secs(30), || server.sent_bytes("pack/") > 12 << 20);
    running.signal(Signal::KILL);
    running.wait();
    assert!(partial_files(&sandbox) > 0, "the kill came in the middle of a file");
    server.set_download_rate(None);
    for number in 0..FILES {
        sandbox.write(format!("S/{number}.bin"), rnd(50 + number, 100_000));
    }
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_eq!(partial_files(&sandbox), 0);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

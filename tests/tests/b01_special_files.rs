//! B01: special files neither stop a push nor a fetch.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use forebay_tests::{Class, Sandbox, make_fifo, raw_path, text};

/// A pipe nobody writes to would hold the run until its limit.
const LIMIT_S: u64 = 20;
const QUICK: Duration = Duration::from_secs(5);

#[test]
fn a_push_leaves_special_files_out_and_names_them() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a.bin", "abc");
    make_fifo(sandbox.path("S/pipe"));
    let _listener = UnixListener::bind(sandbox.path("S/sock")).unwrap();
    sandbox.mkdir("S/deep/er");
    make_fifo(sandbox.path("S/deep/er/pipe2"));

    let pushed = sandbox.command(["push", "S", "r"]).json().limit_s(LIMIT_S).run().ok();
    assert!(pushed.elapsed < QUICK, "took {:?}", pushed.elapsed);
    assert_eq!((pushed.num("skipped"), pushed.num("files"), pushed.num("dirs")), (3, 1, 2));
    let warnings = pushed.warnings();
    let said = |name: &str, what: &str| {
        warnings.iter().any(|warning| {
            let path = raw_path(warning).unwrap_or_default();
            path.ends_with(name.as_bytes()) && warning["message"].as_str().is_some_and(|text| text.contains(what))
        })
    };
    assert!(said("/pipe", "fifo") && said("/sock", "socket") && said("/pipe2", "fifo"), "{warnings:?}");
    assert_eq!(warnings.iter().filter(|warning| warning["kind"] == "skipped").count(), 3, "one warning each");

    let plain = sandbox.command(["push", "S", "r"]).limit_s(LIMIT_S).run().ok();
    for name in ["S/pipe", "S/sock", "S/deep/er/pipe2"] {
        assert_eq!(text(&plain.stderr).matches(&format!("{name} left out")).count(), 1, "{plain:?}");
    }
    assert_eq!(sandbox.json(["ls", "-R", "r"]).ok().listed_paths(), [&b"a.bin"[..], b"deep", b"deep/er"]);
    let left_out = sandbox.json(["push", "S", "r", "--exclude", "pipe*", "--exclude", "sock"]).ok();
    assert_eq!((left_out.num("skipped"), left_out.warnings().len()), (0, 0), "what is left out needs no warning");
}

#[test]
fn a_pipe_where_a_file_has_to_be_is_replaced_and_never_opened() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a.bin", "abc");
    sandbox.write("S/big.bin", vec![7; 6_000_000]);
    sandbox.write("S/sub/x", "x");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.mkdir("D");
    for name in ["D/a.bin", "D/big.bin", "D/sub"] {
        make_fifo(sandbox.path(name));
    }
    let fetched = sandbox.command(["fetch", "r", "D"]).limit_s(LIMIT_S).run().ok();
    assert!(fetched.elapsed < QUICK, "took {:?}", fetched.elapsed);
    assert_eq!(std::fs::read(sandbox.path("D/a.bin")).unwrap(), b"abc");
    assert_eq!(std::fs::read(sandbox.path("D/sub/x")).unwrap(), b"x");
    assert_eq!(std::fs::metadata(sandbox.path("D/big.bin")).unwrap().len(), 6_000_000);
}

#[test]
fn a_folder_where_a_file_has_to_be_is_not_silently_removed() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a.bin", "abc");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.write("D/a.bin/precious", "mine");
    sandbox.run(["fetch", "r", "D"]).ends(Class::Usage).says("a.bin").says("--delete");
    assert_eq!(std::fs::read(sandbox.path("D/a.bin/precious")).unwrap(), b"mine");
    sandbox.run(["fetch", "--delete", "r", "D"]).ok();
    assert_eq!(std::fs::read(sandbox.path("D/a.bin")).unwrap(), b"abc");
}

#[test]
fn the_summary_counts_what_was_left_out() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a.bin", "abc");
    let summary = || text(&sandbox.command(["push", "S", "r"]).limit_s(LIMIT_S).run().ok().stdout);
    assert!(!summary().contains("skipped"));
    make_fifo(sandbox.path("S/pipe"));
    make_fifo(sandbox.path("S/pipe2"));
    let said = summary();
    assert!(said.contains("1 file") && said.contains("2 skipped"), "{said}");
}

#[test]
fn a_special_file_is_neither_source_nor_destination() {
    let sandbox = Sandbox::new();
    make_fifo(sandbox.path("pipe"));
    sandbox.command(["push", "pipe", "r"]).limit_s(LIMIT_S).run().ends(Class::Usage).says("pipe");
    sandbox.write("S/a.bin", "abc");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.command(["fetch", "r", "pipe"]).limit_s(LIMIT_S).run().ends(Class::Usage).says("pipe");
    assert!(sandbox.path("pipe").symlink_metadata().is_ok(), "it is still there");
}

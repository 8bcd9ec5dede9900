//! B37: pipes, JSON, no terminal.

use forebay_tests::{Class, Sandbox, Stdout};

const FILES: u64 = 100_000;

fn many_files() -> Sandbox {
    let sandbox = Sandbox::new();
    for folder in 0..FILES / 1000 {
        let path = sandbox.mkdir(format!("S/{folder:03}"));
        for file in 0..1000 {
            std::fs::write(path.join(format!("file-{file:03}")), b"x").expect("a small file can be written");
        }
    }
    sandbox.command(["push", "S", "r"]).limit_s(120).run().ok();
    sandbox
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let sandbox = many_files();
    for args in [&["ls", "-R", "r"][..], &["ls", "-R", "--json", "r"], &["ls", "-lR", "r"]] {
        let outcome = sandbox.command(args).stdout(Stdout::Head(10)).run();
        assert!(matches!(outcome.code(), 0 | 141), "{args:?} ended with {}", outcome.code());
        assert!(outcome.stderr.is_empty(), "{:?}", String::from_utf8_lossy(&outcome.stderr));
    }
    let listed = sandbox.json(["ls", "-R", "r"]).ok();
    assert_eq!(listed.num("entries"), FILES + FILES / 1000);

    for args in [&["ls", "-R", "r"][..], &["ls", "r"], &["refs"], &["--json", "refs"], &["cat", "r:000/file-000"]] {
        let outcome = sandbox.command(args).redirect(">&-").run();
        assert_ne!(outcome.code(), 0, "{args:?} with closed stdout");
        let full = sandbox.command(args).redirect(">/dev/full").run();
        assert_eq!(full.code(), Class::Space.code(), "{args:?} into a full disk");
    }
}

#[test]
fn json_is_json_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", vec![5; 3_000_000]);
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "xterm"), ("CLICOLOR_FORCE", "1")] {
        let command = |args: &[&str]| sandbox.command(args).json().env(name, value);
        assert_eq!(command(&["push", "S", "r"]).run().ok().num("files"), 1);
        assert_eq!(command(&["fetch", "r", "D"]).run().ok().num("files"), 1);
        for (args, class) in [
            (&["fetch", "absent", "D"][..], Class::NotFound),
            (&["push", "absent", "r"], Class::NotFound),
            (&["fetch", "r"], Class::Usage),
            (&["nonsense"], Class::Usage),
            (&["fetch", "BAD NAME", "D"], Class::Usage),
        ] {
            let failed = command(args).run().ends(class);
            assert_eq!(failed.error()["class"], class.name(), "{args:?}");
        }
    }
}

#[test]
fn closed_stderr_changes_no_exit_code() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", "1");
    for redirect in ["", "2>&-", "2>/dev/full"] {
        let code = |args: &[&str]| sandbox.command(args).redirect(redirect).run().code();
        assert_eq!(code(&["push", "S", "r"]), 0, "{redirect}");
        assert_eq!(code(&["fetch", "r", "D"]), 0, "{redirect}");
        assert_eq!(code(&["fetch", "absent", "D"]), 3, "{redirect}");
        assert_eq!(code(&["fetch"]), 2, "{redirect}");
    }
}

#[test]
fn json_goes_whole_into_a_file_whatever_stderr_is() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", vec![5; 300_000]);
    forebay_tests::make_fifo(sandbox.path("S/pipe"));
    sandbox.run(["push", "S", "r"]).ok();
    for redirect in ["", "2>&-", "2>/dev/full"] {
        for (args, code) in [
            (&["push", "S", "r"][..], 0),
            (&["fetch", "r", "D"], 0),
            (&["man", "pages"], 0),
            (&["--version"], 0),
            (&["fetch", "absent", "D"], 3),
            (&["cat", "r:a"], 2),
            (&["fetch"], 2),
        ] {
            let out = sandbox.path("out");
            let command = sandbox.command(args).json().env("NO_COLOR", "1").redirect(redirect);
            let outcome = command.stdout(Stdout::File(out.clone())).run();
            assert_eq!(outcome.code(), code, "{args:?} {redirect}");
            assert!(outcome.stderr.is_empty(), "all is said in JSON: {outcome:?}");
            let out = String::from_utf8(std::fs::read(out).unwrap()).unwrap();
            assert!(out.ends_with('\n') && !out.contains('\u{1b}'), "{args:?}: {out}");
            let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let last = lines.last().unwrap();
            assert_eq!(last["event"], if code == 0 { "result" } else { "error" }, "{args:?}");
            if code != 0 {
                assert_eq!(last["exit"], code, "{args:?}");
            }
        }
    }
}

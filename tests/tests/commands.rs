//! Every command: its fields, its exit classes, and what users expect of it.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use forebay_tests::{Class, S3Server, Sandbox, assert_tree_equal, files_below, rnd, text, tree_of, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// A repository with two versions of `set` and one of `other/set`.
fn pushed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("S/a.txt", "one\n");
    sandbox.write("S/sub/noise", rnd(1, 600_000));
    sandbox.write("S/sub/b.tmp", "temporary");
    sandbox.run(["push", "S", "set"]).ok();
    sandbox.run(["push", "S", "other/set"]).ok();
    sandbox.write("S/a.txt", "two\n");
    sandbox.write("S/new", rnd(2, 50_000));
    std::fs::remove_file(sandbox.path("S/sub/b.tmp")).expect("the file is there");
    sandbox.run(["push", "S", "set"]).ok();
    sandbox
}

fn has_fields(result: &Value, fields: &[&str]) {
    for name in fields {
        assert!(result.get(name).is_some(), "{name} is missing in {result}");
    }
}

fn is_hex_id(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[test]
fn push_gives_its_fields_and_makes_the_repository() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", rnd(1, 700_000));
    sandbox.write("S/sub/b", "b");
    let first = sandbox.json(["push", "S", "set"]).ok();
    let made: Vec<_> = first.warnings().into_iter().filter(|warning| warning["kind"] == "new-repository").collect();
    assert_eq!(made.len(), 1, "one line says that a repository was made");
    let plain = sandbox.run(["--repo", "another", "push", "S", "set"]).ok();
    let told = text(&plain.stderr);
    assert_eq!(told.lines().filter(|line| line.contains("new repository") && line.contains("another")).count(), 1);
    assert!(!told.is_empty() && text(&plain.stdout).contains("set@1"), "{plain:?}");
    let again = sandbox.run(["--repo", "another", "push", "S", "set"]).ok();
    assert!(!again.said().contains("new repository"), "only once: {again:?}");
    let result = first.result();
    has_fields(
        &result,
        &[
            "snapshot",
            "ref",
            "seq",
            "parent",
            "files",
            "dirs",
            "links",
            "bytes",
            "chunks",
            "new_chunks",
            "new_bytes",
            "stored_bytes",
            "skipped",
            "changed",
            "vanished",
            "seconds",
        ],
    );
    assert!(is_hex_id(&result["snapshot"]) && result["parent"].is_null() && result["ref"] == "set");
    assert_eq!((first.num("seq"), first.num("files"), first.num("dirs")), (1, 2, 1));
    assert_eq!((first.num("bytes"), first.num("new_bytes")), (700_001, 700_000));
    assert_eq!(first.num("chunks"), first.num("new_chunks"));
    let on_disk: u64 = files_below(sandbox.repo_dir())
        .iter()
        .filter(|path| matches!(path.extension().and_then(|e| e.to_str()), Some("pack" | "seg")))
        .map(|path| path.metadata().unwrap().len())
        .sum();
    assert_eq!(first.num("stored_bytes"), on_disk, "what is said to be stored is what lies there");

    let again = sandbox.json(["push", "S", "set"]).ok();
    assert_eq!((again.num("new_bytes"), again.num("new_chunks"), again.num("stored_bytes")), (0, 0, 0));
    assert_eq!((again.num("seq"), again.str("snapshot")), (1, first.str("snapshot")));
    sandbox.write("S/c", "c");
    let third = sandbox.json(["push", "S", "set"]).ok();
    assert_eq!((third.num("seq"), third.str("parent")), (2, first.str("snapshot")));
}

#[test]
fn init_makes_a_repository_once() {
    let sandbox = Sandbox::new();
    let made = sandbox.json(["init", "--chunk-profile", "512k"]).ok();
    assert_eq!((made.num("chunk_min"), made.num("chunk_avg"), made.num("chunk_max")), (128 << 10, 512 << 10, 2 << 20));
    sandbox.run(["init"]).ends(Class::Conflict);
    sandbox.run(["init", "--chunk-profile", "3k"]).ends(Class::Usage);
    assert_eq!(sandbox.json(["refs"]).ok().num("refs"), 0);
}

#[test]
fn reading_an_unknown_repository_is_not_found_and_makes_nothing() {
    let sandbox = Sandbox::new();
    for args in [
        &["refs"][..],
        &["ls", "set"],
        &["log", "set"],
        &["fetch", "set", "D"],
        &["cat", "set:a"],
        &["verify"],
        &["du"],
        &["rm", "set"],
        &["diff", "a", "b"],
    ] {
        sandbox.run(args).ends(Class::NotFound);
        sandbox.json(args).ends(if args[0] == "cat" { Class::Usage } else { Class::NotFound });
    }
    assert!(!sandbox.repo_dir().exists() && !sandbox.path("D").exists());
}

#[test]
fn fetch_gives_its_fields_and_moves_nothing_twice() {
    let sandbox = pushed();
    let first = sandbox.json(["fetch", "set", "D"]).ok();
    let result = first.result();
    has_fields(
        &result,
        &[
            "snapshot",
            "files",
            "files_written",
            "bytes",
            "bytes_written",
            "payload_bytes",
            "wire_bytes",
            "from",
            "retried_bytes",
            "seconds",
        ],
    );
    has_fields(&result["from"], &["local", "cache", "site", "gateway", "origin"]);
    assert_eq!((first.num("files"), first.num("files_written")), (3, 3));
    assert_eq!(
        (first.num("bytes"), first.num("bytes_written"), first.num("payload_bytes")),
        (650_004, 650_004, 650_000)
    );
    assert!(first.num("wire_bytes") >= 650_000);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    let again = sandbox.json(["fetch", "set", "D"]).ok();
    assert_eq!((again.num("files_written"), again.num("bytes_written"), again.num("payload_bytes")), (0, 0, 0));
    assert_eq!(again.result()["from"]["local"], 650_004);
    // Offline, with everything here, is fine; with something gone it says what.
    sandbox.run(["fetch", "--offline", "set", "D"]).ok();
    std::fs::remove_file(sandbox.path("D/new")).unwrap();
    let offline = sandbox.json(["fetch", "--offline", "set", "D"]).ends(Class::NotFound);
    assert_eq!(offline.error()["missing_bytes"], 50_000);
    assert!(offline.error()["message"].as_str().unwrap().contains("new"));
}

#[test]
fn fetch_chooses_and_deletes() {
    let sandbox = pushed();
    let some = sandbox.json(["fetch", "set@1", "some", "--include", "*.txt", "--include", "/sub/b.*"]).ok();
    assert_eq!(some.num("files"), 2);
    assert_eq!(std::fs::read(sandbox.path("some/sub/b.tmp")).unwrap(), b"temporary");
    assert!(!sandbox.path("some/sub/noise").exists());
    let without = sandbox.json(["fetch", "set@1", "without", "--exclude", "sub/"]).ok();
    assert_eq!((without.num("files"), sandbox.path("without/sub").exists()), (1, false));
    // A folder that is chosen comes with those above it, which are not.
    sandbox.mkdir("E/above/chosen/below");
    sandbox.mkdir("E/beside");
    sandbox.run(["push", "E", "empty"]).ok();
    sandbox.run(["fetch", "empty", "chosen", "--include", "chosen/"]).ok();
    assert!(sandbox.path("chosen/above/chosen/below").is_dir() && !sandbox.path("chosen/beside").exists());

    sandbox.write("D/mine", "mine");
    sandbox.write("D/old/deep/x", "x");
    sandbox.run(["fetch", "set@1", "D"]).ok();
    assert!(sandbox.path("D/mine").exists(), "nothing is removed without being asked for");
    sandbox.run(["fetch", "--delete", "set@1", "D", "--exclude", "mine"]).ok();
    assert!(sandbox.path("D/mine").exists() && !sandbox.path("D/old").exists(), "what is left out is left alone");
    let all = sandbox.json(["fetch", "--delete", "set", "D"]).ok();
    assert_eq!(all.num("deleted"), 2, "mine and b.tmp");
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn versions_are_named_by_number_and_by_id() {
    let sandbox = pushed();
    let log = sandbox.json(["log", "set"]).ok();
    let versions: Vec<Value> = log.json_lines().into_iter().filter(|line| line["event"] == "version").collect();
    let (second, first) = (versions[0].clone(), versions[1].clone());
    assert_eq!((&first["seq"], &second["seq"], &second["parent"]), (&1.into(), &2.into(), &first["snapshot"]));
    let id = first["snapshot"].as_str().unwrap();
    for spelling in ["set@1".to_owned(), format!("set@{}", &id[..8]), format!("set@{}", id.to_uppercase())] {
        assert_eq!(sandbox.cat(format!("{spelling}:a.txt")).ok().stdout, b"one\n");
    }
    assert_eq!(sandbox.cat("set:a.txt").ok().stdout, b"two\n");
    sandbox.run(["cat", "set@3:a.txt"]).ends(Class::NotFound).says("set@2");
    sandbox.run(["cat", "set@0123456789abcdef:a.txt"]).ends(Class::NotFound);
    sandbox.run(["cat", "set@abc:a.txt"]).ends(Class::Usage);
    sandbox.run(["cat", "absent:a.txt"]).ends(Class::NotFound).says("absent");
    sandbox.run(["cat", "set:absent"]).ends(Class::NotFound).says("absent");
    sandbox.run(["cat", "set:sub"]).ends(Class::Usage).says("folder");
    sandbox.run(["cat", "set"]).ends(Class::Usage);
    sandbox.run(["ls", "set:absent"]).ends(Class::NotFound);
}

#[test]
fn refs_ls_diff_and_du_show_what_is_there() {
    let sandbox = pushed();
    let refs = sandbox.json(["refs"]).ok();
    let names: Vec<String> =
        refs.json_lines().iter().filter_map(|line| Some(line["ref"].as_str()?.to_owned())).collect();
    assert_eq!(names, ["other/set", "set"]);
    let newest = refs.entries().into_iter().find(|line| line["ref"] == "set").unwrap();
    has_fields(&newest, &["ref", "seq", "snapshot", "versions", "time", "writer"]);
    assert_eq!((&newest["event"], &newest["seq"], &newest["versions"]), (&"ref".into(), &2.into(), &2.into()));
    let log = sandbox.json(["log", "set"]).ok();
    assert_eq!(log.num("versions"), 2);
    for line in log.entries() {
        has_fields(&line, &["ref", "seq", "snapshot", "parent", "time", "writer"]);
        assert!(is_hex_id(&line["snapshot"]) && line["event"] == "version" && line["ref"] == "set", "{line}");
    }
    assert_eq!(log.entries()[0]["snapshot"], newest["snapshot"]);
    assert_eq!(sandbox.json(["ls", "set:sub"]).ok().listed_paths(), [b"noise"]);
    let listed = sandbox.json(["ls", "-R", "set@1"]).ok();
    assert_eq!(listed.listed_paths(), [&b"a.txt"[..], b"sub", b"sub/b.tmp", b"sub/noise"]);
    let noise = listed.entries().into_iter().find(|entry| entry["path"] == "sub/noise").unwrap();
    assert_eq!((&noise["type"], &noise["size"]), (&"file".into(), &600_000.into()));
    let meta = sandbox.path("S/sub/noise").metadata().unwrap();
    let (seconds, nanos) = (i128::from(meta.mtime()), i128::from(meta.mtime_nsec()));
    assert_eq!(noise["mtime_ns"], (seconds * 1_000_000_000 + nanos).to_string());
    assert_eq!(noise["mode"], format!("{:04o}", meta.mode() & 0o7777));
    let long = text(&sandbox.run(["ls", "-l", "set:sub"]).ok().stdout);
    assert!(long.lines().count() == 1 && long.contains("600000") && long.ends_with(" noise\n"), "{long}");
    assert_eq!(noise["blake3"], blake3::hash(&rnd(1, 600_000)).to_hex().as_str());

    let diff = sandbox.json(["diff", "set@1", "set@2"]).ok();
    let changes: Vec<(String, String)> = diff
        .json_lines()
        .iter()
        .filter(|line| line["event"] == "change")
        .map(|line| (line["change"].as_str().unwrap().to_owned(), line["path"].as_str().unwrap().to_owned()))
        .collect();
    for (change, path) in [("modified", "a.txt"), ("added", "new"), ("removed", "sub/b.tmp")] {
        assert!(changes.contains(&(change.to_owned(), path.to_owned())), "{change} {path}: {changes:?}");
    }
    assert!(!changes.iter().any(|(_, path)| path == "sub/noise"), "{changes:?}");
    assert_eq!((diff.num("added"), diff.num("removed"), diff.num("modified")), (1, 1, 1));
    assert_eq!(sandbox.json(["diff", "set@1", "other/set"]).ok().num("added"), 0);

    let du = sandbox.json(["du"]).ok();
    let one = sandbox.json(["du", "set"]).ok();
    assert!(
        du.num("stored_bytes") < 700_000 && one.num("shared_bytes") > 600_000,
        "{:?} {:?}",
        du.result(),
        one.result()
    );
    assert_eq!(one.num("plain_bytes"), 650_004);
    sandbox.run(["du", "absent"]).ends(Class::NotFound);
}

#[test]
fn rm_removes_a_name_and_its_number_goes_on() {
    let sandbox = pushed();
    let newest = sandbox.json(["log", "set"]).ok().entries()[0]["snapshot"].clone();
    let removed = sandbox.json(["rm", "set"]).ok();
    assert_eq!((removed.str("ref"), removed.num("seq")), ("set".to_owned(), 2));
    assert_eq!(removed.result()["snapshot"], newest);
    sandbox.run(["log", "set"]).ends(Class::NotFound);
    sandbox.run(["rm", "set"]).ends(Class::NotFound);
    assert_eq!(sandbox.cat("other/set:a.txt").ok().stdout, b"one\n");
    let back = sandbox.json(["push", "S", "set"]).ok();
    assert_eq!((back.num("seq"), back.num("new_bytes")), (4, 0), "a sequence never goes back");
    assert!(back.result()["parent"].is_null());
}

#[test]
fn expect_compares_before_anything_moves() {
    let sandbox = pushed();
    let second = sandbox.json(["push", "S", "set"]).ok().str("snapshot");
    sandbox.write("S/more", "more");
    let refused = sandbox.json(["push", "S", "set", "--expect", "none"]).ends(Class::Conflict);
    assert_eq!(refused.error()["found"], second.as_str());
    assert!(refused.error()["message"].as_str().unwrap().contains("set"));
    sandbox.run(["push", "S", "set", "--expect", "00000000"]).ends(Class::Conflict).says(&second);
    sandbox.run(["push", "S", "set", "--expect", "xyz"]).ends(Class::Usage);
    assert_eq!(sandbox.json(["push", "S", "set", "--expect", &second[..12]]).ok().num("seq"), 3);
    sandbox.run(["push", "S", "fresh", "--expect", "none"]).ok();
    sandbox.run(["push", "S", "fresh2", "--expect", &second]).ends(Class::Conflict).says("absent");
}

#[test]
fn push_excludes_labels_and_rehearses() {
    let sandbox = Sandbox::new();
    sandbox.write("S/keep", rnd(4, 100_000));
    sandbox.write("S/x.tmp", "2");
    sandbox.write("S/cache/y", "3");
    let rehearsed = sandbox.json(["push", "S", "set", "--dry-run", "--exclude", "*.tmp", "--exclude", "cache/"]).ok();
    assert_eq!((rehearsed.num("files"), rehearsed.num("seq")), (1, 1));
    sandbox.run(["log", "set"]).ends(Class::NotFound);
    assert!(!sandbox.repo_dir().exists(), "a rehearsal makes nothing");
    let plain = sandbox.json(["push", "S", "set", "--exclude", "*.tmp", "--exclude", "cache/"]).ok();
    for name in ["files", "dirs", "bytes", "chunks", "new_chunks", "new_bytes", "seq"] {
        assert_eq!(plain.num(name), rehearsed.num(name), "a rehearsal says what then happens: {name}");
    }
    assert_eq!(plain.str("snapshot"), rehearsed.str("snapshot"));
    let labelled = |labels: &[&str]| {
        let args = ["push", "S", "set", "--exclude", "*.tmp", "--exclude", "cache/"];
        let args = args.iter().chain(labels.iter().flat_map(|label| [&"--label", label]));
        sandbox.json(args).ok().str("snapshot")
    };
    let real = labelled(&["class=raw", "by=hand=made"]);
    assert_ne!(real, rehearsed.str("snapshot"), "labels are part of a version");
    assert_eq!(labelled(&["by=hand=made", "class=raw"]), real, "their order is not");
    sandbox.run(["push", "S", "set", "--label", "=nothing"]).ends(Class::Usage);
    sandbox.run(["push", "S", "set", "--label", "nothing"]).ends(Class::Usage);
    sandbox.run(["push", "S", "BAD"]).ends(Class::Usage).says("BAD");
    sandbox.run(["push", "S", "set", "--exclude", "{a"]).ends(Class::Usage).says("{a");
}

#[test]
fn verify_gives_its_fields() {
    let sandbox = pushed();
    for args in
        [&["verify"][..], &["verify", "set"], &["verify", "set@1", "--sample", "50%"], &["verify", "--sample", "1"]]
    {
        let verified = sandbox.json(args).ok();
        has_fields(&verified.result(), &["chunks", "bytes", "missing", "corrupt", "repaired", "quarantined"]);
        assert_eq!((verified.num("missing"), verified.num("corrupt")), (0, 0));
    }
    assert!(sandbox.json(["verify", "set"]).ok().num("bytes") >= 650_000);
    sandbox.run(["verify", "absent"]).ends(Class::NotFound).says("absent");
    sandbox.run(["verify", "set@9"]).ends(Class::NotFound).says("set@2");
    sandbox.run(["verify", "--sample", "0"]).ends(Class::Usage);
    sandbox.run(["verify", "--sample", "101%"]).ends(Class::Usage);
}

#[test]
fn settings_come_from_flag_environment_file_and_default() {
    let sandbox = Sandbox::new();
    sandbox.write("home/config/forebay/config.toml", "tenant = \"from-file\"\njob = \"file-job\"\nthreads = 3\n");
    let shown = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = sandbox.command(args).json();
        for (name, value) in env {
            command = command.env(*name, *value);
        }
        command.run().ok().result()["settings"].clone()
    };
    let file = shown(&["config", "show"], &[]);
    assert_eq!(file["tenant"]["value"], "from-file");
    assert!(file["tenant"]["source"].as_str().unwrap().ends_with("config.toml"), "{file}");
    assert_eq!((&file["offline"]["source"], &file["threads"]["value"]), (&"default".into(), &"3".into()));
    assert_eq!(file["repo"]["source"], "environment (FOREBAY_REPO)");
    let env = shown(&["config", "show"], &[("FOREBAY_TENANT", "from-env"), ("FOREBAY_THREADS", "5")]);
    assert_eq!((&env["tenant"]["value"], &env["threads"]["value"]), (&"from-env".into(), &"5".into()));
    let flag = shown(&["config", "show", "--tenant", "from-flag"], &[("FOREBAY_TENANT", "from-env")]);
    assert_eq!((&flag["tenant"]["value"], &flag["tenant"]["source"]), (&"from-flag".into(), &"flag".into()));
    sandbox.write("home/config/forebay/config.toml", "tennant = \"typo\"\n");
    sandbox.run(["config", "show"]).ends(Class::Usage).says("tennant").says("config.toml");
    sandbox.run(["--config", "absent.toml", "config", "show"]).ends(Class::Usage).says("absent.toml");
    sandbox.command(["refs"]).env("FOREBAY_THREADS", "many").run().ends(Class::Usage).says("FOREBAY_THREADS");
}

#[test]
fn version_completions_and_manual_pages() {
    let sandbox = Sandbox::new();
    let version = sandbox.json(["--version"]).ok();
    assert_eq!(version.str("version"), env!("CARGO_PKG_VERSION"));
    has_fields(&version.result(), &["name", "version", "format"]);
    let commands = [
        "init",
        "push",
        "fetch",
        "cat",
        "ls",
        "refs",
        "log",
        "diff",
        "rm",
        "verify",
        "du",
        "config",
        "completions",
        "man",
    ];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let plain = text(&sandbox.run(["completions", shell]).ok().stdout);
        for word in commands {
            assert!(plain.contains(word), "{shell} does not know {word}");
        }
    }
    sandbox.run(["completions", "dos"]).ends(Class::Usage).says("zsh");
    assert_eq!(sandbox.json(["man", "pages"]).ok().str("dir"), "pages");
    assert!(sandbox.path("pages/forebay.1").exists());
    for word in commands {
        let page = std::fs::read_to_string(sandbox.path(format!("pages/forebay-{word}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(word), "{word}");
    }
    sandbox.run(["--help"]).ok();
    for word in ["gs://", "s3://", "ftp://x/y", "s3:///prefix"] {
        sandbox.run(["--repo", word, "refs"]).ends(Class::Usage);
    }
}

/// An interrupted push keeps what it has sent, and the next one sends only the rest.
fn interrupted_push(signal: Signal, class: Option<Class>) {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    for number in 0..6 {
        sandbox.write(format!("S/{number}"), rnd(number, 40_000_000));
    }
    server.set_upload_rate(Some(60_000_000));
    let mut running = sandbox.command(["push", "S", "r"]).json().start();
    wait_until("two packs have been sent", Duration::from_secs(30), || server.received_bytes("pack/") > 140_000_000);
    running.signal(signal);
    let ended = running.wait();
    match class {
        Some(class) => {
            let ended = ended.ends(class);
            assert_eq!(ended.error()["exit"], class.code());
            let progress: Vec<Value> =
                ended.json_lines().into_iter().filter(|line| line["event"] == "progress").collect();
            assert!(progress.iter().all(|line| line["bytes"].is_u64() && line["bytes_total"].is_u64()), "{progress:?}");
            let at_most = ended.elapsed.as_secs_f64() * 2.0 + 1.0;
            assert!(progress.len() as f64 <= at_most, "{} lines in {:?}", progress.len(), ended.elapsed);
            sandbox.run(["log", "r"]).ends(Class::NotFound);
        }
        None => assert_eq!(ended.code(), 137, "killed"),
    }
    server.set_upload_rate(None);
    let before: u64 =
        server.objects().iter().filter(|(key, _)| key.contains("/pack/")).map(|(_, len)| *len as u64).sum();
    // A kill loses the packs on their way; a signal lets them arrive.
    let least = if class.is_some() { 128_000_000 } else { 64_000_000 };
    assert!(before > least, "what was sent is kept: {before}");
    server.clear_log();
    let resumed = sandbox.json(["push", "S", "r"]).ok();
    let sent = server.received_bytes("pack/");
    // A pack that is there and was not yet remembered when the kill came is sent again.
    let again = if class.is_some() { 16_000_000 } else { 2 * (64 << 20) };
    assert!(sent + before < 240_000_000 + again, "{before} were there and {sent} were sent");
    assert_eq!(resumed.num("bytes"), 240_000_000);
    sandbox.run(["verify", "r"]).ok();
}

#[test]
fn a_push_after_sigkill_goes_on() {
    interrupted_push(Signal::KILL, None);
}

#[test]
fn a_push_after_sigint_goes_on() {
    interrupted_push(Signal::INT, Some(Class::Interrupted));
}

#[test]
fn a_push_after_sigterm_goes_on() {
    interrupted_push(Signal::TERM, Some(Class::Terminated));
}

#[test]
fn two_versions_of_a_file_of_one_length_and_time_are_two() {
    // The length and the modification time are the same, the change time is not.
    let sandbox = Sandbox::new();
    let path = sandbox.write("S/x", "AAAA");
    sandbox.run(["push", "S", "r"]).ok();
    let modified = path.metadata().unwrap().modified().unwrap();
    for content in ["BBBB", "CCCC"] {
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        sandbox.run(["push", "S", "r"]).ok();
        assert_eq!(sandbox.cat("r:x").ok().stdout, content.as_bytes());
    }
}

#[test]
fn a_repository_without_its_head_is_not_made_anew() {
    let sandbox = pushed();
    let head = sandbox.repo_dir().join("forebay.cbor");
    let saved = std::fs::read(&head).unwrap();
    std::fs::remove_file(&head).unwrap();
    sandbox.run(["push", "S", "set"]).ends(Class::Corrupt).says("forebay.cbor");
    sandbox.run(["init"]).ends(Class::Corrupt).says("forebay.cbor");
    assert!(!head.exists());
    std::fs::write(&head, saved).unwrap();
    sandbox.run(["verify"]).ok();
}

#[test]
fn what_killed_writers_left_is_swept_when_it_is_old() {
    let sandbox = pushed();
    let pack = sandbox.write("repo/pack/ab/abcd.pack#1", "unfinished");
    let young = sandbox.write("repo/pack/ab/beef.pack#2", "somebody writes it now");
    let other = sandbox.write("repo/pack/ab/notes#x", "no staging file");
    for path in [&pack, &other] {
        forebay_tests::set_mtime(path, 1_000_000_000, 0);
    }
    sandbox.run(["push", "S", "set"]).ok();
    assert!(!pack.exists() && young.exists() && other.exists());
    sandbox.run(["verify"]).ok();
}

#[test]
fn what_cannot_be_pushed_is_refused_before_a_repository_is_made() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", "1");
    for args in [
        &["push", "absent", "set"][..],
        &["push", "S", "BAD"],
        &["push", "S", "set", "--expect", "xyz"],
        &["push", "S", "set", "--label", "nothing"],
        &["push", "S"],
        &["push", "/dev/null", "set"],
    ] {
        let class = if args[1] == "absent" { Class::NotFound } else { Class::Usage };
        sandbox.json(args).ends(class);
        assert!(!sandbox.repo_dir().exists(), "{args:?} made a repository");
    }
}

#[test]
fn quiet_says_nothing_but_errors() {
    let sandbox = Sandbox::new();
    sandbox.write("S/a", "1");
    forebay_tests::make_fifo(sandbox.path("S/pipe"));
    for args in [&["--quiet", "push", "S", "set"][..], &["-q", "fetch", "set", "D"], &["ls", "-q", "set"]] {
        let outcome = sandbox.run(args).ok();
        assert!(outcome.stderr.is_empty() && !outcome.stdout.is_empty(), "{outcome:?}");
    }
    sandbox.run(["-q", "fetch", "absent", "D"]).ends(Class::NotFound).says("absent");
}

#[test]
fn completions_are_json_with_json() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let plain = text(&sandbox.run(["completions", shell]).ok().stdout);
        let json = sandbox.json(["completions", shell]).ok();
        assert_eq!((json.str("script"), json.str("shell")), (plain, shell.to_owned()));
    }
}

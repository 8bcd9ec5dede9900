//! The index is a cache: deleting or garbling it costs time and a word, never data.

use std::path::{Path, PathBuf};

use forebay_tests::{Sandbox, Seeded, assert_tree_equal, files_below, rnd, tree_of};

fn filled() -> Sandbox {
    let sandbox = Sandbox::new();
    for number in 0..40 {
        sandbox.write(format!("S/{number}/noise"), rnd(number, 70_000));
        sandbox.write(format!("S/{number}/small"), number.to_string());
    }
    for round in 0..3 {
        sandbox.write("S/changing", rnd(100 + round, 400_000));
        sandbox.run(["push", "S", "r"]).ok();
    }
    sandbox
}

/// Everything that is kept about the repository: the RocksDB folder and the copy of the log's state.
fn kept(sandbox: &Sandbox) -> PathBuf {
    let listed = std::fs::read_dir(sandbox.cache_dir()).expect("the cache is there");
    let mut folders: Vec<_> = listed.flatten().map(|item| item.path()).collect();
    assert_eq!(folders.len(), 1, "one repository, one folder: {folders:?}");
    folders.remove(0)
}

/// The next commands work, with right bytes, and at least one says that the index was made anew.
fn next_commands_work(sandbox: &Sandbox, what: &str) {
    let first = sandbox.json(["fetch", "--delete", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    let pushed = sandbox.json(["push", "S", "r"]).ok();
    assert_eq!(pushed.num("new_bytes"), 0, "{what}: nothing is sent again");
    let verified = sandbox.json(["verify"]).ok();
    assert!(verified.num("chunks") > 40, "{what}");
    let said = [first.warnings(), pushed.warnings(), verified.warnings()].concat();
    let kinds: Vec<&str> = said.iter().filter_map(|warning| warning["kind"].as_str()).collect();
    assert!(
        kinds.iter().any(|kind| matches!(*kind, "index-filled" | "index-rebuilt")),
        "{what}: somebody says what happened: {said:?}"
    );
}

#[test]
fn a_deleted_index_is_filled_again() {
    let sandbox = filled();
    std::fs::remove_dir_all(kept(&sandbox).join("index-v0")).unwrap();
    next_commands_work(&sandbox, "deleted");
    sandbox.forget_cache();
    next_commands_work(&sandbox, "whole cache deleted");
}

#[test]
fn a_garbled_index_is_made_anew() {
    let mut random = Seeded::new(6);
    for way in ["truncate", "garble", "empty", "head"] {
        let sandbox = filled();
        for path in files_below(kept(&sandbox).join("index-v0")) {
            let mut bytes = std::fs::read(&path).unwrap();
            match way {
                "truncate" => bytes.truncate(bytes.len() / 2),
                "empty" => bytes.clear(),
                "head" => bytes.iter_mut().take(64).for_each(|byte| *byte = 0xff),
                _ => {
                    for _ in 0..bytes.len() / 20 {
                        let at = random.index(bytes.len());
                        bytes[at] = random.next_u64().to_le_bytes()[0];
                    }
                }
            }
            std::fs::write(&path, bytes).unwrap();
        }
        next_commands_work(&sandbox, way);
    }
}

#[test]
fn each_file_of_the_index_may_be_lost() {
    let names: Vec<_> = {
        let sandbox = filled();
        let base = kept(&sandbox);
        files_below(base.join("index-v0")).iter().map(|path| path.strip_prefix(&base).unwrap().to_owned()).collect()
    };
    assert!(names.len() > 5, "{names:?}");
    for (number, name) in names.iter().enumerate() {
        let sandbox = filled();
        // Names hold counters: the file of the same kind at the same place is meant.
        let files = files_below(kept(&sandbox).join("index-v0"));
        let Some(path) = files.get(number) else { continue };
        std::fs::remove_file(path).unwrap();
        let fetched = sandbox.json(["fetch", "r", "D"]).ok();
        assert_eq!(fetched.num("files"), 81, "without {}", name.display());
        assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
        assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("new_bytes"), 0, "without {}", name.display());
    }
}

#[test]
fn a_garbled_copy_of_the_log_is_not_believed() {
    let sandbox = filled();
    let copy = kept(&sandbox).join("log.state");
    for garbled in [b"nonsense".to_vec(), Vec::new(), std::fs::read(&copy).unwrap()[..50].to_vec()] {
        std::fs::write(&copy, garbled).unwrap();
        assert_eq!(sandbox.json(["log", "r"]).ok().num("versions"), 3);
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let mut sandbox = filled();
    sandbox.write("blocked", "a file where the cache folder should be");
    let blocked = sandbox.path("blocked");
    sandbox.set_env("FOREBAY_CACHE", blocked);
    let fetched = sandbox.json(["fetch", "r", "D"]).ok();
    assert!(fetched.warnings().iter().any(|warning| warning["kind"] == "cache-unusable"), "{:?}", fetched.warnings());
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    sandbox.write("S/new", rnd(7, 100_000));
    assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("new_bytes"), 100_000);
}

#[test]
fn an_index_of_a_history_that_was_taken_back_is_not_believed() {
    // The repository is restored from a copy; this machine still remembers chunks that went with the later versions.
    let sandbox = filled();
    let copy = |from: &str, to: &str| {
        let status = std::process::Command::new("cp").arg("-a").arg(sandbox.path(from)).arg(sandbox.path(to)).status();
        assert!(status.is_ok_and(|status| status.success()));
    };
    copy("repo", "saved");
    sandbox.write("S/later", rnd(77, 300_000));
    sandbox.run(["push", "S", "r"]).ok();
    std::fs::remove_dir_all(sandbox.repo_dir()).unwrap();
    copy("saved", "repo");
    let again = sandbox.json(["push", "S", "r"]).ok();
    assert_eq!(again.num("new_bytes"), 300_000, "what went with the later version is sent again");
    assert!(again.warnings().iter().any(|warning| warning["kind"] == "index-rebuilt"), "{:?}", again.warnings());
    sandbox.forget_cache();
    sandbox.run(["verify"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

/// Sets a folder back to what `saved` holds, times and modes included.
fn set_back(saved: &Path, folder: &Path) {
    std::fs::remove_dir_all(folder).ok();
    let status = std::process::Command::new("cp").arg("-a").arg(saved).arg(folder).status();
    assert!(status.is_ok_and(|status| status.success()), "a folder of the test can be copied");
}

#[test]
fn each_file_of_the_index_may_be_cut_or_garbled() {
    let sandbox = filled();
    let (cache, saved) = (sandbox.cache_dir(), sandbox.path("saved-cache"));
    set_back(&cache, &saved);
    let files = files_below(kept(&sandbox).join("index-v0"));
    assert!(files.len() > 5, "{files:?}");
    let mut random = Seeded::new(37);
    for path in &files {
        for way in ["half", "empty", "garbled", "noise"] {
            set_back(&saved, &cache);
            let mut bytes = std::fs::read(path).unwrap();
            match way {
                "half" => bytes.truncate(bytes.len() / 2),
                "empty" => bytes.clear(),
                "noise" => bytes = rnd(random.next_u64(), bytes.len()),
                _ => {
                    for _ in 0..(bytes.len() / 20).max(1).min(bytes.len()) {
                        let at = random.index(bytes.len());
                        bytes[at] ^= random.next_u64().to_le_bytes()[0] | 1;
                    }
                }
            }
            std::fs::write(path, bytes).unwrap();
            let name = path.file_name().unwrap().to_string_lossy();
            let what = format!("{name}, {way}");
            let pushed = sandbox.json(["push", "S", "r"]).ok();
            assert_eq!((pushed.num("new_bytes"), pushed.num("seq")), (0, 3), "{what}");
            let fetched = sandbox.json(["fetch", "--delete", "r", "D"]).ok();
            assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
            let kinds: Vec<_> = [pushed.warnings(), fetched.warnings()].concat();
            let told = kinds.iter().any(|line| line["kind"] == "index-filled" || line["kind"] == "index-rebuilt");
            // Without these nothing of the index can be read.
            if name == "CURRENT" || (name.starts_with("MANIFEST") && way != "garbled") {
                assert!(told, "{what}: nobody says that the index was made anew: {kinds:?}");
            }
        }
    }
    let verified = sandbox.json(["verify"]).ok();
    assert_eq!((verified.num("missing"), verified.num("corrupt")), (0, 0));
}

#[test]
fn every_command_passes_by_a_garbled_copy_of_the_log() {
    let sandbox = filled();
    let copy = kept(&sandbox).join("log.state");
    let good = std::fs::read(&copy).unwrap();
    let mut random = Seeded::new(11);
    for round in 0..12 {
        let mut bytes = good.clone();
        match round {
            0 => bytes.clear(),
            1 => bytes = rnd(5, 4_000),
            2 => bytes.truncate(good.len() - 1),
            3 => bytes.extend_from_slice(b"more"),
            _ => {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        std::fs::write(&copy, bytes).unwrap();
        match round % 3 {
            0 => assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("seq"), 3, "round {round}"),
            1 => assert_eq!(sandbox.json(["fetch", "r@2", "D"]).ok().num("files"), 81, "round {round}"),
            _ => assert_eq!(sandbox.json(["refs"]).ok().num("refs"), 1, "round {round}"),
        }
    }
    sandbox.run(["fetch", "--delete", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    // A folder in its place cannot be read either.
    std::fs::remove_file(&copy).ok();
    std::fs::create_dir(&copy).unwrap();
    assert_eq!(sandbox.json(["log", "r"]).ok().num("versions"), 3);
}

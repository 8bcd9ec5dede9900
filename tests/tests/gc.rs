//! Collecting garbage: what goes, what stays, and what happens when somebody kills, writes or damages things meanwhile.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use forebay_tests::{
    Class, Sandbox, Seeded, allocated_bytes, assert_tree_equal, files_below, rnd, soak, tree_of, write_rnd,
};
use rustix::process::Signal;

const MIB: usize = 1 << 20;

/// All packs, not those that are still being written.
fn packs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pack");
    files_below(sandbox.repo_dir().join("pack")).into_iter().filter(is_pack).collect()
}

fn stored(sandbox: &Sandbox) -> u64 {
    packs(sandbox).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Everything that refs name is whole, read from what lies in the repository.
fn is_whole(sandbox: &Sandbox) {
    sandbox.forget_cache();
    sandbox.json(["verify"]).ok();
}

#[test]
fn what_no_version_needs_goes_and_what_one_needs_stays() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("A/shared"), 1, 6 * MIB);
    write_rnd(sandbox.path("A/own"), 2, 6 * MIB);
    write_rnd(sandbox.path("B/shared"), 1, 6 * MIB);
    write_rnd(sandbox.path("B/other"), 3, 3 * MIB);
    sandbox.json(["push", "A", "a"]).ok();
    sandbox.json(["push", "B", "b"]).ok();
    let nothing = sandbox.json(["gc", "--grace", "0s"]).ok();
    assert_eq!((nothing.num("condemned_bytes"), nothing.num("deleted_bytes")), (0, 0));
    sandbox.run(["rm", "b"]).ok();
    let before = stored(&sandbox);
    let foretold = sandbox.json(["gc", "--dry-run", "--grace", "0s"]).ok();
    assert_eq!(stored(&sandbox), before, "a rehearsal changes nothing");
    assert!(foretold.num("condemned_bytes") > 3 * MIB as u64, "{:?}", foretold.result());
    let done = sandbox.json(["gc", "--grace", "0s"]).ok();
    assert_eq!(done.num("condemned_bytes"), foretold.num("condemned_bytes"));
    assert_eq!(done.num("deleted_bytes"), done.num("condemned_bytes"));
    assert!(stored(&sandbox) < before - 3 * MIB as u64);
    is_whole(&sandbox);
    sandbox.json(["fetch", "a", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("A")));
    // What was deleted is stored again, not taken for known.
    let again = sandbox.json(["push", "B", "b"]).ok();
    assert!(again.num("new_bytes") >= 3 * MIB as u64);
    is_whole(&sandbox);
    sandbox.json(["fetch", "b", "E"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("E")), &tree_of(sandbox.path("B")));
    assert_eq!(sandbox.json(["gc", "--grace", "0s"]).ok().num("condemned_bytes"), 0);
}

#[test]
fn condemned_bytes_wait_for_their_time() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("A/one"), 1, 2 * MIB);
    write_rnd(sandbox.path("B/two"), 2, 2 * MIB);
    sandbox.json(["push", "A", "a"]).ok();
    sandbox.json(["push", "B", "b"]).ok();
    sandbox.run(["rm", "b"]).ok();
    let before = stored(&sandbox);
    let first = sandbox.json(["gc"]).ok();
    assert!(first.num("condemned_bytes") > 0 && first.num("deleted_bytes") == 0);
    assert_eq!(first.num("waiting_bytes"), first.num("condemned_bytes"));
    assert_eq!(stored(&sandbox), before);
    let second = sandbox.json(["gc"]).ok();
    assert_eq!((second.num("condemned_bytes"), second.num("waiting_bytes")), (0, first.num("condemned_bytes")));
    // A machine that knew the old index stores again what is condemned, though it still lies there.
    let pushed = sandbox.json(["push", "B", "b"]).ok();
    assert!(pushed.num("new_bytes") >= 2 * MIB as u64);
    let third = sandbox.json(["gc", "--grace", "0s"]).ok();
    assert_eq!(third.num("deleted_bytes"), first.num("condemned_bytes"));
    is_whole(&sandbox);
}

#[test]
fn packs_that_are_mostly_dead_are_copied() {
    let sandbox = Sandbox::new();
    for number in 0..32 {
        write_rnd(sandbox.path(format!("A/{number:02}")), number, MIB);
    }
    sandbox.json(["push", "A", "a"]).ok();
    for number in 0..32 {
        if number % 8 > 0 {
            fs::remove_file(sandbox.path(format!("A/{number:02}"))).unwrap();
        }
    }
    sandbox.json(["push", "A", "b"]).ok();
    sandbox.run(["rm", "a"]).ok();
    let done = sandbox.json(["gc", "--grace", "0s"]).ok();
    let repacked = done.num("repacked_bytes");
    assert!((4 * MIB as u64..6 * MIB as u64).contains(&repacked), "{repacked}");
    assert!(stored(&sandbox) < 6 * MIB as u64, "{}", stored(&sandbox));
    is_whole(&sandbox);
    sandbox.json(["fetch", "b", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("A")));
    assert_eq!(sandbox.json(["push", "A", "b"]).ok().num("new_bytes"), 0);
}

#[test]
fn bases_stay_as_long_as_their_patches() {
    let sandbox = Sandbox::new();
    let mut random = Seeded::new(4);
    let mut bytes = rnd(1, 4 * MIB);
    let mut versions = Vec::new();
    for _ in 0..12 {
        sandbox.write("S/w.bin", &bytes);
        sandbox.json(["push", "S", "run"]).ok();
        versions.push(bytes.clone());
        for _ in 0..8 {
            let at = random.index(bytes.len() - 100);
            bytes.splice(at..at + 10, rnd(random.next_u64(), 30));
        }
    }
    // B27 (c): only the newest is kept, and whatever it is made of.
    let done = sandbox.json(["gc", "--grace", "0s", "--keep-last", "1"]).ok();
    assert_eq!(done.num("forgotten_versions"), 11);
    is_whole(&sandbox);
    assert!(sandbox.cat("run@12:w.bin").ok().stdout == versions[11]);
    sandbox.run(["cat", "run@11:w.bin"]).ends(Class::NotFound);
    sandbox.json(["gc", "--grace", "0s"]).ok();
    is_whole(&sandbox);
    assert!(sandbox.cat("run:w.bin").ok().stdout == versions[11]);
}

#[test]
fn what_a_killed_push_left_behind_goes_after_the_grace_and_not_before() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("A/one"), 1, MIB);
    sandbox.json(["push", "A", "a"]).ok();
    let before = stored(&sandbox);
    write_rnd(sandbox.path("B/large"), 2, 300 * MIB);
    let mut pushing = sandbox.command(["push", "B", "b"]).json().start();
    forebay_tests::wait_until("a pack is there", Duration::from_secs(60), || {
        stored(&sandbox) > before + 32 * MIB as u64
    });
    pushing.signal(Signal::KILL);
    let _killed = pushing.wait();
    assert_eq!(sandbox.json(["gc"]).ok().num("condemned_bytes"), 0, "it may still be on its way");
    let done = sandbox.json(["gc", "--grace", "0s"]).ok();
    assert!(done.num("orphan_bytes") > 32 * MIB as u64 && done.num("deleted_bytes") == done.num("orphan_bytes"));
    assert!(stored(&sandbox) <= before + MIB as u64);
    // The machine that was pushing remembers packs that are gone: it must find that out.
    sandbox.json(["push", "B", "b"]).ok();
    is_whole(&sandbox);
    sandbox.json(["fetch", "b", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("B")));
}

#[test]
fn nothing_is_deleted_if_anything_cannot_be_read() {
    let sandbox = Sandbox::new();
    for number in 0..300 {
        sandbox.write(format!("A/{number}/file"), rnd(number, 9_000));
    }
    write_rnd(sandbox.path("B/two"), 1000, 2 * MIB);
    sandbox.json(["push", "A", "a"]).ok();
    sandbox.json(["push", "B", "b"]).ok();
    sandbox.run(["rm", "b"]).ok();
    let all: Vec<(PathBuf, Vec<u8>)> = ["pack", "index"]
        .iter()
        .flat_map(|below| files_below(sandbox.repo_dir().join(below)))
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    let mut refused = 0;
    for (path, bytes) in &all {
        for way in ["gone", "half", "flipped"] {
            match way {
                "gone" => fs::remove_file(path).unwrap(),
                "half" => fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
                _ => {
                    let mut bad = bytes.clone();
                    let at = bad.len() / 3;
                    bad[at] ^= 4;
                    fs::write(path, bad).unwrap();
                }
            }
            sandbox.forget_cache();
            let outcome = sandbox.json(["gc", "--grace", "1000h"]).ends_in_one_of(&[Class::Ok, Class::Corrupt]);
            refused += usize::from(outcome.code() == Class::Corrupt.code());
            fs::write(path, bytes).unwrap();
        }
    }
    assert!(refused >= 3, "damaged manifests and segments are seen: {refused}");
    is_whole(&sandbox);
    sandbox.json(["fetch", "a", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("A")));
}

#[test]
fn the_last_ref_takes_everything_along_only_if_that_is_said() {
    let sandbox = Sandbox::new();
    write_rnd(sandbox.path("A/one"), 1, MIB);
    sandbox.json(["push", "A", "a"]).ok();
    sandbox.run(["rm", "a"]).ok();
    sandbox.json(["gc", "--grace", "0s"]).ends(Class::Usage).says("--all");
    assert!(stored(&sandbox) > MIB as u64);
    sandbox.json(["gc", "--grace", "0s", "--all"]).ok();
    assert_eq!(stored(&sandbox), 0);
    sandbox.json(["push", "A", "a"]).ok();
    is_whole(&sandbox);
}

/// Kills a command after a random time again and again.
#[test]
fn a_collection_can_be_killed_anywhere() {
    let sandbox = Sandbox::new();
    let mut random = Seeded::new(77);
    let rounds = if soak() { 200 } else { 12 };
    for number in 0..40 {
        write_rnd(sandbox.path(format!("S/{number:02}")), number, MIB / 2);
    }
    sandbox.json(["push", "S", "kept"]).ok();
    for round in 0..rounds {
        write_rnd(sandbox.path("T/one"), 1000 + round, 3 * MIB);
        let changed = sandbox.path(format!("S/{:02}", random.index(40)));
        write_rnd(changed, 2000 + round, MIB / 2);
        sandbox.json(["push", "T", "gone"]).ok();
        sandbox.json(["push", "S", "kept"]).ok();
        sandbox.run(["rm", "gone"]).ok();
        let mut collecting = sandbox.command(["gc", "--grace", "0s", "--keep-last", "2"]).json().start();
        std::thread::sleep(Duration::from_micros(random.next_u64() % 120_000));
        collecting.signal(Signal::KILL);
        let _killed = collecting.wait();
        let dest = format!("D{round}");
        sandbox.json(["fetch", "kept", &dest]).ok();
        assert_tree_equal(&tree_of(sandbox.path(&dest)), &tree_of(sandbox.path("S")));
        fs::remove_dir_all(sandbox.path(&dest)).unwrap();
    }
    sandbox.json(["gc", "--grace", "0s", "--keep-last", "1"]).ok();
    is_whole(&sandbox);
    let left = sandbox.json(["gc", "--grace", "0s"]).ok();
    assert_eq!(left.num("condemned_bytes"), 0);
    assert!(stored(&sandbox) < 45 * MIB as u64, "{} bytes for 20 MiB", stored(&sandbox));
}

#[test]
fn pushes_and_collections_at_once_lose_nothing() {
    let sandbox = Sandbox::new();
    let rounds = if soak() { 40 } else { 5 };
    write_rnd(sandbox.path("base/one"), 1, 4 * MIB);
    sandbox.json(["push", "base", "base"]).ok();
    for round in 0..rounds {
        for writer in 0..3 {
            // All writers share most of what they push, and each removes what it pushed before.
            write_rnd(sandbox.path(format!("W{writer}/shared")), round, 5 * MIB);
            write_rnd(sandbox.path(format!("W{writer}/own")), 100 * round + writer, MIB);
        }
        let mut running: Vec<_> = (0..3)
            .map(|writer| {
                let command = sandbox.command(["push", &format!("W{writer}"), &format!("w{writer}")]).json();
                command.env("FOREBAY_CACHE", sandbox.path(format!("cache-{writer}"))).start()
            })
            .collect();
        running.push(sandbox.command(["gc", "--grace", "0s", "--keep-last", "1"]).json().start());
        running.push(
            sandbox.command(["gc", "--grace", "0s"]).json().env("FOREBAY_CACHE", sandbox.path("cache-gc")).start(),
        );
        for one in running {
            one.wait().ends_in_one_of(&[Class::Ok, Class::Conflict]);
        }
        sandbox.json(["verify"]).ok();
        for writer in 0..3 {
            let dest = format!("D{round}-{writer}");
            if sandbox.json(["fetch", &format!("w{writer}"), &dest]).code() == 0 {
                assert_tree_equal(&tree_of(sandbox.path(&dest)), &tree_of(sandbox.path(format!("W{writer}"))));
            }
        }
    }
    sandbox.json(["gc", "--grace", "0s", "--keep-last", "1"]).ok();
    is_whole(&sandbox);
}

#[test]
fn checkpoints_are_pruned_by_rule() {
    let sandbox = Sandbox::new();
    for step in 1..=7 {
        write_rnd(sandbox.path("C/weights"), step, MIB);
        sandbox.json(["checkpoint", "save", "C", "run", "--step", &(step * 100).to_string()]).ok();
    }
    let done = sandbox.json(["checkpoint", "prune", "run", "--keep-last", "2", "--keep-every", "300"]).ok();
    assert_eq!((done.num("forgotten"), done.num("kept")), (4, 3));
    sandbox.json(["gc", "--grace", "0s"]).ok();
    for (step, is_there) in [(100, false), (200, false), (300, true), (400, false), (600, true), (700, true)] {
        let class = if is_there { Class::Ok } else { Class::NotFound };
        sandbox.json(["checkpoint", "restore", &format!("run@{step}"), &format!("D{step}")]).ends(class);
    }
    sandbox.json(["checkpoint", "restore", "run@latest", "L"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("L")), &tree_of(sandbox.path("C")));
    assert!(allocated_bytes(sandbox.repo_dir()) < 4 * MIB as u64);
    sandbox.json(["checkpoint", "prune", "run"]).ends(Class::Usage);
}

//! `verify --repair`: what is damaged comes back from wherever it still is whole, and nothing is deleted on the way.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use forebay_tests::{
    Class, Sandbox, Seeded, Serving, assert_tree_equal, client, files_below, rnd, soak, tree_of, write_rnd,
};

const MIB: usize = 1 << 20;

/// Two versions: noise, text, a sparse file, links, inline files, patches, lists of chunks.
fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["init", "--chunk-profile", "1/4/16"]).ok();
    write_rnd(sandbox.path("S/noise"), 1, 3 * MIB);
    sandbox.write("S/text", "where the water waits\n".repeat(20_000));
    sandbox.write("S/sub/inline", "short");
    let mut sparse = vec![0; MIB];
    sparse[500_000..500_005].copy_from_slice(b"water");
    sandbox.write("S/sub/sparse", sparse);
    std::os::unix::fs::symlink("noise", sandbox.path("S/link")).unwrap();
    sandbox.run(["push", "S", "r"]).ok();
    copy_of(&sandbox, "S", "old");
    let mut edited = fs::read(sandbox.path("S/noise")).unwrap();
    for at in (0..edited.len()).step_by(100_000) {
        edited[at] ^= 1;
    }
    sandbox.write("S/noise", edited);
    sandbox.write("S/more", rnd(9, 200_000));
    sandbox.run(["push", "S", "r"]).ok();
    sandbox
}

/// A copy with modes, times, links and holes.
fn copy_of(sandbox: &Sandbox, from: &str, to: &str) {
    let mut command = std::process::Command::new("cp");
    command.args(["-a", "--sparse=always"]).arg(sandbox.path(from)).arg(sandbox.path(to));
    assert!(command.status().unwrap().success());
}

fn objects(sandbox: &Sandbox, ending: &str) -> Vec<PathBuf> {
    let mut found = files_below(sandbox.repo_dir());
    found.retain(|path| {
        let kept = path.strip_prefix(sandbox.repo_dir()).unwrap().starts_with("quarantine");
        !kept && path.extension().is_some_and(|found| found == ending)
    });
    found
}

/// The pack with the most bytes: data.
fn largest(sandbox: &Sandbox) -> PathBuf {
    objects(sandbox, "pack").into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// Both versions are whole, by verify and by what a machine that remembers nothing fetches.
fn is_whole(sandbox: &Sandbox) {
    sandbox.forget_cache();
    let verified = sandbox.json(["verify"]).ok();
    assert_eq!((verified.num("missing"), verified.num("corrupt")), (0, 0));
    for (version, wanted) in [("r@1", "old"), ("r@2", "S")] {
        let dest = sandbox.path("D");
        let _absent_before = fs::remove_dir_all(&dest);
        sandbox.json(["fetch", version, "D"]).ok();
        assert_tree_equal(&tree_of(&dest), &tree_of(sandbox.path(wanted)));
    }
}

#[test]
fn nothing_is_done_where_nothing_is_wrong() {
    let sandbox = repository();
    let before = tree_of(sandbox.repo_dir());
    let done = sandbox.json(["verify", "--repair", "--from", "S"]).ok();
    assert_eq!((done.num("repaired"), done.num("quarantined")), (0, 0));
    assert_tree_equal(&tree_of(sandbox.repo_dir()), &before);
}

#[test]
fn a_damaged_chunk_comes_back_from_the_folder() {
    let sandbox = repository();
    let pack = largest(&sandbox);
    let good = fs::read(&pack).unwrap();
    flip(&pack, 10_000);
    flip(&pack, good.len() / 2);
    let bad = fs::read(&pack).unwrap();
    sandbox.json(["verify"]).ends(Class::Corrupt).says("--repair");
    // Pushing it again does not help: its chunks are known.
    sandbox.json(["push", "S", "r"]).ok();
    sandbox.json(["verify"]).ends(Class::Corrupt);
    // Without a place to take it from nothing is changed.
    let left = sandbox.json(["verify", "--repair"]).ends(Class::Corrupt);
    assert_eq!(left.error()["repaired"], 0);
    assert_eq!(fs::read(&pack).unwrap(), bad);
    // The newest version has most of it: a patch of the first stands on what the first alone has.
    let done = sandbox.json(["verify", "--repair", "--from", "S", "--from", "old"]).ok();
    assert!(done.num("repaired") >= 2, "{:?}", done.result());
    assert_eq!(done.num("quarantined"), 1);
    let kept = sandbox.repo_dir().join("quarantine").join(pack.file_name().unwrap());
    assert_eq!(fs::read(kept).unwrap(), bad, "what was there is kept as it was");
    is_whole(&sandbox);
    // The damaged pack goes with the next collection, what is kept of it stays.
    sandbox.json(["gc", "--grace", "0s"]).ok();
    assert!(!pack.exists() && sandbox.repo_dir().join("quarantine").exists());
    is_whole(&sandbox);
}

#[test]
fn packs_segments_and_manifests_that_are_gone_come_back_from_a_copy_of_the_repository() {
    let sandbox = repository();
    copy_of(&sandbox, "repo", "backup");
    let original: Vec<PathBuf> = objects(&sandbox, "pack").into_iter().chain(objects(&sandbox, "seg")).collect();
    assert!(original.len() >= 6, "data and manifests of two pushes: {original:?}");
    for path in original {
        // One by one: each repair leaves a repository that the next damage is done to.
        if !path.exists() {
            continue;
        }
        fs::remove_file(&path).unwrap();
        sandbox.forget_cache();
        sandbox.json(["verify"]).ends(Class::Corrupt);
        let done = sandbox.json(["verify", "--repair", "--from", "backup"]).ok();
        assert!(done.num("repaired") > 0, "{}: {:?}", path.display(), done.result());
        is_whole(&sandbox);
        // What does not count any more is damaged without harm.
        sandbox.json(["gc", "--grace", "0s"]).ok();
    }
}

#[test]
fn a_damaged_segment_is_made_anew_from_packs_alone() {
    let sandbox = repository();
    // One pack without its footer too: its frames say what it is.
    let pack = largest(&sandbox);
    let len = usize::try_from(fs::metadata(&pack).unwrap().len()).unwrap();
    flip(&pack, len - 3);
    for segment in objects(&sandbox, "seg") {
        flip(&segment, 40);
    }
    sandbox.forget_cache();
    sandbox.json(["fetch", "r", "D"]).ends(Class::Corrupt);
    let done = sandbox.json(["verify", "--repair"]).ok();
    assert_eq!((done.num("repaired"), done.num("quarantined")), (3, 3), "two segments and a footer");
    is_whole(&sandbox);
    // And others can go on.
    sandbox.write("S/new", rnd(77, 100_000));
    sandbox.json(["push", "S", "r"]).ok();
    sandbox.json(["gc", "--grace", "0s"]).ok();
    sandbox.json(["verify"]).ok();
}

#[test]
fn what_comes_back_in_parts_is_whole_in_the_end() {
    let sandbox = Sandbox::new();
    for (number, name) in ["one", "two"].into_iter().enumerate() {
        write_rnd(sandbox.path(format!("S/{name}/file")), number as u64, MIB);
    }
    sandbox.run(["push", "S", "r"]).ok();
    let pack = largest(&sandbox);
    for part in 0..20 {
        flip(&pack, part * (MIB / 10) + 5_000);
    }
    let first = sandbox.json(["verify", "--repair", "--from", "S/one"]).ends(Class::Corrupt);
    assert_eq!(first.error()["quarantined"], 0, "half of the pack is lost still");
    assert_eq!(sandbox.cat("r:one/file").ok().stdout, rnd(0, MIB));
    sandbox.cat("r:two/file").ends(Class::Corrupt);
    let second = sandbox.json(["verify", "r", "--repair", "--from", "S/two"]).ok();
    assert_eq!(second.num("quarantined"), 1);
    sandbox.forget_cache();
    sandbox.json(["verify"]).ok();
    assert_eq!(sandbox.cat("r:two/file").ok().stdout, rnd(1, MIB));
}

#[test]
fn an_edge_gives_back_what_its_gateway_has_lost() {
    let sandbox = repository();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    client(&sandbox, "c", &edge.addr(), &["fetch", "r@1", "W"]).run().ok();
    gateway.stop();
    let pack = largest(&sandbox);
    let middle = usize::try_from(fs::metadata(&pack).unwrap().len() / 2).unwrap();
    flip(&pack, middle);
    sandbox.json(["verify"]).ends(Class::Corrupt);
    let gateway = Serving::gateway(&sandbox, "gateway2", &[]);
    drop(edge);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    let done = sandbox.json(["--node", &edge.addr(), "verify", "--repair"]).ok();
    assert!(done.num("repaired") >= 1 && done.num("quarantined") == 1, "{:?}", done.result());
    edge.stop();
    gateway.stop();
    is_whole(&sandbox);
}

#[test]
fn what_cannot_be_brought_back_is_left_and_named() {
    let sandbox = repository();
    let pack = largest(&sandbox);
    flip(&pack, 9_000);
    sandbox.write("elsewhere/other", rnd(4, 50_000));
    let left = sandbox.json(["verify", "--repair", "--from", "elsewhere"]).ends(Class::Corrupt).says("--from");
    assert_eq!(left.error()["quarantined"], 0);
    assert!(pack.exists());
    sandbox.run(["verify", "--from", "S"]).ends(Class::Usage);
    sandbox.run(["verify", "--repair", "--from", "nothing"]).ends(Class::NotFound).says("nothing");
    // It was never touched otherwise: what is whole reads on.
    assert_eq!(sandbox.cat("r:sub/inline").ok().stdout, b"short");
    sandbox.json(["verify", "--repair", "--from", "old", "--from", "S"]).ok();
    is_whole(&sandbox);
}

#[test]
fn seeded_damage_is_repaired_whatever_it_hits() {
    let sandbox = repository();
    copy_of(&sandbox, "repo", "backup");
    let mut random = Seeded::new(20_261_204);
    for round in 0..if soak() { 60 } else { 6 } {
        for _ in 0..=random.index(3) {
            let mut all: Vec<PathBuf> = objects(&sandbox, "pack");
            all.extend(objects(&sandbox, "seg"));
            let path = &all[random.index(all.len())];
            let len = fs::metadata(path).unwrap().len();
            match random.index(4) {
                0 => fs::remove_file(path).unwrap(),
                1 => fs::File::options().write(true).open(path).unwrap().set_len(random.below(len)).unwrap(),
                _ => flip(path, random.index(usize::try_from(len).unwrap())),
            }
        }
        sandbox.forget_cache();
        sandbox.json(["verify", "--repair", "--from", "backup"]).ok();
        is_whole(&sandbox);
        if round % 3 == 2 {
            sandbox.json(["gc", "--grace", "0s"]).ok();
            is_whole(&sandbox);
        }
    }
}

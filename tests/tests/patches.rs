//! Changed chunks are stored as patches of what lay in their place: small, whole, and never without their bases.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::PathBuf;

use forebay_tests::{
    Class, Mounted, Sandbox, Seeded, Serving, assert_tree_equal, client, files_below, rnd, skipped, tree_of,
};

const MIB: usize = 1 << 20;

/// Scattered edits: overwritten, inserted, taken out. Returns the bytes that are new.
fn edit(bytes: &mut Vec<u8>, random: &mut Seeded, edits: usize) -> usize {
    let mut new = 0;
    for _ in 0..edits {
        let len = 64 + random.index(4000);
        let at = random.index(bytes.len() - len);
        let fresh = rnd(random.next_u64(), len);
        match random.index(3) {
            0 => bytes[at..at + len].copy_from_slice(&fresh),
            1 => drop(bytes.splice(at..at, fresh)),
            _ => {
                bytes.drain(at..at + len);
                continue;
            }
        }
        new += len;
    }
    new
}

/// A folder with a large file and small ones, pushed, edited and pushed again. Returns what the second push stored and how
/// many bytes are new.
fn two_versions(sandbox: &Sandbox) -> (u64, usize) {
    let mut random = Seeded::new(11);
    let mut large = rnd(1, 24 * MIB);
    sandbox.write("S/large", &large);
    for number in 0..40 {
        sandbox.write(format!("S/below/{number}"), rnd(100 + number, 20_000 + 500 * usize::try_from(number).unwrap()));
    }
    sandbox.json(["push", "S", "set"]).ok();
    let mut new = edit(&mut large, &mut random, 40);
    sandbox.write("S/large", &large);
    for number in 0..10 {
        let path = sandbox.path(format!("S/below/{number}"));
        let mut small = fs::read(&path).unwrap();
        new += edit(&mut small, &mut random, 1);
        fs::write(path, small).unwrap();
    }
    let second = sandbox.json(["push", "S", "set"]).ok();
    (second.num("stored_bytes"), new)
}

#[test]
fn scattered_edits_cost_what_they_change() {
    let sandbox = Sandbox::new();
    let (stored, new) = two_versions(&sandbox);
    assert!(stored <= 3 * new as u64, "{stored} bytes stored for {new} new ones");
    // Without patches each edit costs a chunk.
    sandbox.json(["push", "S", "whole", "--patch", "never"]).ok();
    sandbox.json(["fetch", "set", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    sandbox.json(["verify"]).ok();
    sandbox.json(["verify", "set@2"]).ok();
    // Index and caches are made of what is stored.
    sandbox.forget_cache();
    sandbox.json(["fetch", "set@2", "D2"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D2")), &tree_of(sandbox.path("S")));
}

#[test]
fn without_patches_each_edit_costs_a_chunk() {
    let sandbox = Sandbox::new();
    let mut bytes = rnd(1, 16 * MIB);
    sandbox.write("S/large", &bytes);
    sandbox.json(["push", "S", "set"]).ok();
    edit(&mut bytes, &mut Seeded::new(3), 20);
    sandbox.write("S/large", &bytes);
    let foretold = sandbox.json(["push", "S", "set", "--dry-run"]).ok().num("stored_bytes");
    let whole = sandbox.json(["push", "S", "set", "--dry-run", "--patch", "never"]).ok().num("stored_bytes");
    assert!(foretold * 20 < whole, "{foretold} bytes with patches, {whole} without");
    let stored = sandbox.json(["push", "S", "set", "--patch", "never"]).ok().num("stored_bytes");
    assert!(stored >= whole, "{stored} of {whole}");
}

#[test]
fn who_has_the_old_version_gets_the_difference() {
    let sandbox = Sandbox::new();
    let (stored, _) = two_versions(&sandbox);
    sandbox.json(["fetch", "set@1", "D"]).ok();
    let moved = sandbox.json(["fetch", "set@2", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    // The manifest nodes that changed are read besides the patches.
    let wire = moved.num("wire_bytes");
    assert!(wire <= stored + 256 * 1024, "{wire} bytes moved, {stored} were stored");
}

#[test]
fn nodes_carry_patches() {
    let sandbox = Sandbox::new();
    let (stored, _) = two_versions(&sandbox);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", "1GB"]);
    let fetch = |name: &str, version: &str, dest: &str| {
        client(&sandbox, name, &edge.addr(), &["fetch", version, dest]).run().ok()
    };
    fetch("one", "set@1", "D1");
    let update = fetch("one", "set@2", "D1");
    assert_tree_equal(&tree_of(sandbox.path("D1")), &tree_of(sandbox.path("S")));
    let wire = update.num("wire_bytes");
    assert!(wire <= stored * 105 / 100 + 256 * 1024, "{wire} bytes on the wire, {stored} were stored");
    // Who has nothing asks for the bases too, and finds them in the cache.
    let cold = fetch("two", "set@2", "D2");
    assert_tree_equal(&tree_of(sandbox.path("D2")), &tree_of(sandbox.path("S")));
    assert_eq!(cold.result()["from"]["gateway"], 0, "the edge has it all");
}

#[test]
fn a_warm_edge_has_the_bases_of_patches_too() {
    let sandbox = Sandbox::new();
    two_versions(&sandbox);
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", "1GB"]);
    let first = client(&sandbox, "warmer", &edge.addr(), &["warm", "set@2"]).run().ok();
    assert!(first.num("bytes_moved") > 20 * MIB as u64, "{:?}", first.result());
    let fetched = client(&sandbox, "one", &edge.addr(), &["fetch", "set@2", "D"]).run().ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    assert_eq!(fetched.result()["from"]["gateway"], 0);
    // Also of patches that were there before somebody asked for their bases.
    let other = Serving::edge(&sandbox, "other", &gateway, &["--capacity", "1GB"]);
    client(&sandbox, "two", &other.addr(), &["fetch", "set@1", "E"]).run().ok();
    client(&sandbox, "two", &other.addr(), &["fetch", "set@2", "E"]).run().ok();
    let again = client(&sandbox, "warmer", &other.addr(), &["warm", "set@2"]).run().ok();
    assert_eq!(again.num("bytes_moved"), 0, "all of it came with the first version");
}

#[test]
fn a_mount_reads_patches() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let sandbox = Sandbox::new();
    two_versions(&sandbox);
    let mounted = Mounted::new(&sandbox, "set@2", "M", &[]);
    assert_tree_equal(&tree_of(mounted.path("")), &tree_of(sandbox.path("S")));
}

#[test]
fn chains_of_versions_stay_short_and_whole() {
    let sandbox = Sandbox::new();
    let mut random = Seeded::new(5);
    let mut bytes = rnd(9, 2 * MIB);
    let mut versions = Vec::new();
    for _ in 0..22 {
        sandbox.write("S/w.bin", &bytes);
        sandbox.json(["push", "S", "run"]).ok();
        versions.push(bytes.clone());
        // In one place each time, so that one chunk changes again and again.
        let at = MIB + random.index(1000);
        bytes.splice(at..at + 10, rnd(random.next_u64(), 17));
    }
    for (number, bytes) in versions.iter().enumerate() {
        let read = sandbox.cat(format!("run@{}:w.bin", number + 1)).ok();
        assert!(read.stdout == *bytes, "version {}", number + 1);
    }
    sandbox.json(["verify"]).ok();
    sandbox.forget_cache();
    assert!(sandbox.cat("run@22:w.bin").ok().stdout == versions[21]);
}

#[test]
fn a_lost_base_is_named_and_harms_no_other_version() {
    let sandbox = Sandbox::new();
    let mut bytes = rnd(4, 3 * MIB);
    sandbox.write("S/w.bin", &bytes);
    sandbox.json(["push", "S", "run"]).ok();
    let first: Vec<PathBuf> = files_below(sandbox.repo_dir().join("pack"));
    edit(&mut bytes, &mut Seeded::new(8), 6);
    sandbox.write("S/w.bin", &bytes);
    sandbox.json(["push", "S", "run"]).ok();
    // The largest pack of the first version has its data.
    let data = first.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let away = sandbox.path("away");
    fs::rename(data, &away).unwrap();
    sandbox.json(["fetch", "run@2", "D"]).ends(Class::Corrupt).says("missing or cut short");
    sandbox.json(["verify"]).ends(Class::Corrupt);
    assert!(!sandbox.path("D/w.bin").exists());
    // A push that finds no base stores the chunk whole; what it says is stored can be read.
    edit(&mut bytes, &mut Seeded::new(9), 200);
    sandbox.write("T/w.bin", &bytes);
    sandbox.json(["push", "T", "fresh"]).ok();
    fs::rename(&away, data).unwrap();
    sandbox.json(["fetch", "run@2", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    sandbox.json(["verify"]).ok();
}

#[test]
fn a_flipped_bit_of_a_base_is_found_in_what_is_made_of_it() {
    let sandbox = Sandbox::new();
    let mut bytes = rnd(4, 600_000);
    sandbox.write("S/w.bin", &bytes);
    sandbox.json(["push", "S", "run"]).ok();
    let first: Vec<PathBuf> = files_below(sandbox.repo_dir().join("pack"));
    bytes[300_000] ^= 1;
    sandbox.write("S/w.bin", &bytes);
    sandbox.json(["push", "S", "run"]).ok();
    let data = first.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let whole = fs::read(data).unwrap();
    let mut random = Seeded::new(2);
    for _ in 0..8 {
        let mut bad = whole.clone();
        let at = 8192 + random.index(500_000);
        bad[at] ^= 1 << random.index(8);
        fs::write(data, bad).unwrap();
        let read = sandbox.cat("run@2:w.bin");
        assert!(read.code() == Class::Corrupt.code() || read.stdout == bytes, "bit in byte {at}");
    }
}

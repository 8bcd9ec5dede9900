//! A flipped bit anywhere in a pack, segment, log record or configuration: right bytes or exit 4, never wrong bytes.
//!
//! 1,000 seeded flips; `FOREBAY_SOAK=1` makes it 10,000.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_tests::{Class, Sandbox, Seeded, Tree, files_below, rnd, tree_of};

fn flips() -> u64 {
    if std::env::var_os("FOREBAY_SOAK").is_some() { 10_000 } else { 1_000 }
}

/// A repository with everything in it: compressed and raw chunks, inline files, holes, links, lists, two versions.
fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["init", "--chunk-profile", "64k"]).ok();
    sandbox.write("S/noise", rnd(1, 300_000));
    sandbox.write("S/text", "where the water waits\n".repeat(9_000));
    sandbox.write("S/inline", "short");
    sandbox.write("S/sub/empty", "");
    let mut sparse = vec![0; 400_000];
    sparse[..5].copy_from_slice(b"water");
    sandbox.write("S/sub/sparse", sparse);
    std::os::unix::fs::symlink("inline", sandbox.path("S/link")).expect("links can be made");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.write("S/noise2", rnd(2, 20_000));
    sandbox.run(["push", "S", "r"]).ok();
    sandbox
}

/// What a command may do with a damaged repository.
fn check(sandbox: &Sandbox, way: u64, wanted: &Tree, contents: &BTreeMap<&str, Vec<u8>>, what: &str) -> bool {
    match way {
        0 => {
            let dest = sandbox.path("D");
            let _absent_before = std::fs::remove_dir_all(&dest);
            let fetched = sandbox.run(["fetch", "r", "D"]).ends_in_one_of(&[Class::Ok, Class::Corrupt]);
            if fetched.code() == 0 {
                assert!(tree_of(&dest) == *wanted, "{what}: a fetch that ended well differs");
            } else if dest.exists() {
                for (name, content) in contents {
                    let path = dest.join(name);
                    assert!(
                        !path.exists() || std::fs::read(&path).is_ok_and(|found| found == *content),
                        "{what}: {name} is wrong"
                    );
                }
            }
            fetched.code() == 4
        }
        1 => {
            let mut found = false;
            for (name, content) in contents {
                let read = sandbox.cat(format!("r:{name}")).ends_in_one_of(&[Class::Ok, Class::Corrupt]);
                // What came before the damage was found must be right too.
                assert!(content.starts_with(&read.stdout), "{what}: cat {name} gave wrong bytes");
                assert!(read.code() == 4 || read.stdout == *content, "{what}: cat {name} ended well and is cut short");
                found |= read.code() == 4;
            }
            found
        }
        _ => sandbox.run(["verify"]).ends_in_one_of(&[Class::Ok, Class::Corrupt]).code() == 4,
    }
}

#[test]
fn a_flipped_bit_gives_right_bytes_or_exit_4() {
    let sandbox = repository();
    let wanted = tree_of(sandbox.path("S"));
    let names = ["noise", "text", "inline", "sub/sparse", "noise2"];
    let contents: BTreeMap<&str, Vec<u8>> =
        names.iter().map(|name| (*name, std::fs::read(sandbox.path("S").join(name)).unwrap())).collect();
    let objects: Vec<PathBuf> = files_below(sandbox.repo_dir());
    assert!(objects.len() >= 9, "configuration, two records, two segments, four packs: {objects:?}");
    let mut random = Seeded::new(20_261_201);
    let mut found = [0_u64; 3];
    for number in 0..flips() {
        // Every object is hit as often as every other: the small ones decide more.
        let path = &objects[random.index(objects.len())];
        let good = std::fs::read(path).unwrap();
        let bit = random.below(good.len() as u64 * 8);
        let mut bad = good.clone();
        bad[(bit / 8) as usize] ^= 1 << (bit % 8);
        std::fs::write(path, &bad).unwrap();
        if number % 2 == 0 {
            sandbox.forget_cache();
        }
        let what = format!("flip {number}: bit {bit} of {}", path.strip_prefix(sandbox.repo_dir()).unwrap().display());
        let way = number % 3;
        let is_found = check(&sandbox, way, &wanted, &contents, &what);
        assert!(way != 2 || is_found, "{what}: verify reads everything and has to find it");
        found[way as usize] += u64::from(is_found);
        std::fs::write(path, &good).unwrap();
    }
    assert!(found.iter().all(|count| *count > flips() / 20), "every way meets damage: {found:?}");
    sandbox.forget_cache();
    sandbox.run(["verify"]).ok();
}

#[test]
fn a_missing_object_is_exit_4_and_named() {
    let sandbox = repository();
    for path in files_below(sandbox.repo_dir()) {
        let name = path.strip_prefix(sandbox.repo_dir()).unwrap().display().to_string();
        if name == "forebay.cbor" || name.starts_with("log/") {
            continue;
        }
        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        sandbox.forget_cache();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        sandbox.run(["verify"]).ends(Class::Corrupt).says(&stem);
        std::fs::write(&path, good).unwrap();
    }
}

#[test]
fn a_pack_cut_short_or_swapped_is_found() {
    let sandbox = repository();
    let packs: Vec<PathBuf> = files_below(sandbox.repo_dir())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
        .collect();
    for path in &packs {
        let good = std::fs::read(path).unwrap();
        for len in [0, 1, good.len() / 2, good.len() - 1] {
            std::fs::write(path, &good[..len]).unwrap();
            sandbox.run(["verify"]).ends(Class::Corrupt);
        }
        std::fs::write(path, [&good[..], &[0; 10]].concat()).unwrap();
        sandbox.run(["verify"]).ends(Class::Corrupt);
        std::fs::write(path, &good).unwrap();
    }
    let (one, other) = (std::fs::read(&packs[0]).unwrap(), std::fs::read(&packs[1]).unwrap());
    std::fs::write(&packs[0], &other).unwrap();
    std::fs::write(&packs[1], &one).unwrap();
    sandbox.run(["verify"]).ends(Class::Corrupt);
    sandbox.run(["fetch", "r", "D"]).ends_in_one_of(&[Class::Ok, Class::Corrupt]);
}

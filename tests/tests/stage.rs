//! Staging a checkpoint onto a device.

use forebay_tests::{Class, Sandbox, User, files_below, is_root, rnd, safetensors, skipped, write_rnd_file};

const SLAB: u64 = 16 << 20;

fn stage(sandbox: &Sandbox) -> forebay_tests::Command {
    sandbox.command(["checkpoint", "stage", "run@1", "--device", "host"]).json()
}

/// Files of every kind: long, inline, empty, with holes, equal to another.
fn saved(sandbox: &Sandbox) -> u64 {
    write_rnd_file(sandbox.path("C/long"), 1, 70 << 20);
    sandbox.write("C/model.safetensors", safetensors(2, &[("w", "F32", &[1 << 20], 4 << 20)]));
    sandbox.write("C/twin.safetensors", safetensors(2, &[("w", "F32", &[1 << 20], 4 << 20)]));
    sandbox.write("C/sub/inline", "short");
    sandbox.write("C/sub/empty", "");
    for number in 0..50 {
        sandbox.write(format!("C/small/{number}"), rnd(number, 5_000));
    }
    let mut sparse = vec![0; 40 << 20];
    sparse[..5].copy_from_slice(b"water");
    sparse[(20 << 20) + 77..][..5].copy_from_slice(b"waits");
    sandbox.write("C/sparse", sparse);
    sandbox.give();
    sandbox.json(["checkpoint", "save", "C", "run", "--step", "1"]).ok().num("bytes")
}

#[test]
fn what_lands_is_the_checkpoint() {
    let sandbox = Sandbox::new();
    let bytes = saved(&sandbox);
    for threads in ["1", "4"] {
        let staged = stage(&sandbox).args(["--threads", threads]).run().ok();
        assert_eq!((staged.num("bytes"), staged.str("device").as_str()), (bytes, "host"));
        assert_eq!(staged.result()["verified"], true, "hashed where it landed, and equal to the manifest");
        let slabs = staged.num("slab_bytes");
        assert!((2 * SLAB..=16 * SLAB).contains(&slabs) && slabs.is_multiple_of(SLAB), "{slabs}");
        let locked = staged.num("locked");
        assert!(locked <= bytes + slabs + 60 * 4096, "{locked} locked");
        if is_root() {
            assert!(locked >= bytes + slabs, "{locked} locked of {bytes} and {slabs}");
        }
        // The memory is that of the checkpoint and the slabs, whatever the number of threads.
        let bound = bytes + slabs + (160 << 20);
        assert!(staged.peak_rss_bytes < bound, "{} resident, {bound} allowed", staged.peak_rss_bytes);
    }
}

#[test]
fn the_bench_measures_each_stage() {
    let sandbox = Sandbox::new();
    saved(&sandbox);
    let result = stage(&sandbox).arg("--bench").run().ok().result();
    for name in ["read_decode_verify", "copy", "pipeline", "rehash", "plain_copy"] {
        let rate = result["bench"][format!("{name}_gb_per_s")].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0), "{name}: {result}");
    }
    assert_eq!(result["verified"], true, "the loop before leaves nothing behind");
    let said = sandbox.run(["checkpoint", "stage", "run@1", "--device", "host", "--bench"]).ok().said();
    assert!(said.matches("GB/s").count() >= 5, "{said}");
}

#[test]
fn memory_that_cannot_be_locked_is_told_of() {
    let sandbox = Sandbox::for_user(User::Ordinary);
    let bytes = saved(&sandbox);
    let staged = stage(&sandbox).prelude("ulimit -l 64").run().ok();
    let kinds: Vec<_> = staged.warnings().into_iter().map(|warning| warning["kind"].clone()).collect();
    assert!(kinds.contains(&"memory-not-locked".into()), "{kinds:?}");
    assert_eq!(staged.num("locked"), 0, "only what is really locked is counted");
    assert_eq!((staged.num("bytes"), &staged.result()["verified"]), (bytes, &true.into()));
    // Some of it is better than nothing, and is counted as such: the small checkpoint fits, no slab does.
    sandbox.write("S/small", rnd(1, 300_000));
    sandbox.give();
    sandbox.run(["checkpoint", "save", "S", "small", "--step", "1"]).ok();
    let args = ["checkpoint", "stage", "small@1", "--device", "host"];
    let some = sandbox.command(args).json().prelude("ulimit -l 2000").run().ok();
    assert_eq!((some.num("locked"), some.num("slab_bytes")), (300_000, 2 * SLAB));
}

#[test]
fn damage_is_found_before_anything_counts_as_verified() {
    let sandbox = Sandbox::new();
    saved(&sandbox);
    let packs = files_below(sandbox.repo_dir());
    let pack = packs.iter().filter(|path| path.extension().is_some_and(|extension| extension == "pack"));
    let pack = pack.max_by_key(|path| path.metadata().unwrap().len()).expect("there is a pack");
    let good = std::fs::read(pack).unwrap();
    for part in [10, 2] {
        let mut bad = good.clone();
        let at = bad.len() / part;
        bad[at] ^= 0x10;
        std::fs::write(pack, bad).unwrap();
        let outcome = stage(&sandbox).run().ends(Class::Corrupt);
        let error = outcome.error();
        assert!(error["message"].as_str().unwrap().contains("cannot be staged"), "it names the file: {error}");
        assert!(!String::from_utf8_lossy(&outcome.stdout).contains("\"verified\":true"), "{outcome:?}");
    }
    std::fs::remove_file(pack).unwrap();
    stage(&sandbox).run().ends(Class::Corrupt);
}

#[test]
fn a_machine_without_the_driver_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("C/model", rnd(1, 100_000));
    sandbox.run(["checkpoint", "save", "C", "run", "--step", "1"]).ok();
    let found = std::process::Command::new("sh").args(["-c", "ldconfig -p | grep -q libcuda.so"]).status();
    if found.is_ok_and(|status| status.success()) {
        return skipped("this machine has libcuda");
    }
    let refused = sandbox.json(["checkpoint", "stage", "run@1", "--device", "cuda:0"]).ends(Class::Failed).error();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("libcuda") && message.contains("--device host"), "{message}");
    for wrong in ["cuda", "cuda:x", "tpu:0"] {
        sandbox.run(["checkpoint", "stage", "run@1", "--device", wrong]).ends(Class::Usage);
    }
}

#[test]
fn a_checkpoint_of_empty_files_is_staged_too() {
    let sandbox = Sandbox::new();
    sandbox.write("C/empty", "");
    sandbox.run(["checkpoint", "save", "C", "run", "--step", "1"]).ok();
    let staged = stage(&sandbox).run().ok();
    assert_eq!((staged.num("bytes"), staged.num("files")), (0, 1));
}

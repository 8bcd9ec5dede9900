//! B06: lengths at and around every chunk limit.

use std::collections::BTreeSet;

use forebay_tests::{Sandbox, allocated_bytes, assert_tree_equal, bytes_of, rnd, tree_of};

fn lengths(min: u64, avg: u64, max: u64) -> BTreeSet<u64> {
    let around = |n: u64| [n - 1, n, n + 1];
    let mut lengths: BTreeSet<u64> = [min, avg, max, 4096, 65_536].into_iter().flat_map(around).collect();
    lengths.extend([0, 1, 2 * max, 3 * max + 1, 1 << 20, 4 << 20]);
    lengths
}

#[test]
fn every_length_comes_back_with_any_number_of_threads() {
    for profile in ["64k", "256k", "512k"] {
        let sandbox = Sandbox::new();
        let made = sandbox.json(["init", "--chunk-profile", profile]).ok();
        let (min, avg, max) = (made.num("chunk_min"), made.num("chunk_avg"), made.num("chunk_max"));
        for len in lengths(min, avg, max) {
            let len = usize::try_from(len).unwrap();
            sandbox.write(format!("S/z{len}"), vec![0; len]);
            sandbox.write(format!("S/r{len}"), rnd(len as u64, len));
        }
        let one = sandbox.json(["push", "S", "one", "--threads", "1"]).ok();
        sandbox.forget_cache();
        let known = sandbox.json(["push", "S", "many", "--threads", "16"]).ok();
        assert_eq!(one.str("snapshot"), known.str("snapshot"));
        assert_eq!(known.num("new_bytes"), 0);
        // Into an empty repository sixteen threads have everything to store.
        sandbox.run(["init", "--chunk-profile", profile, "--repo", "other"]).ok();
        let many = sandbox.json(["push", "S", "many", "--threads", "16", "--repo", "other"]).ok();
        for name in ["chunks", "new_chunks", "new_bytes", "bytes", "files"] {
            assert_eq!(many.num(name), one.num(name), "{name}");
        }
        assert_eq!(one.str("snapshot"), many.str("snapshot"));
        sandbox.run(["fetch", "many", "E", "--repo", "other"]).ok();
        assert_tree_equal(&tree_of(sandbox.path("E")), &tree_of(sandbox.path("S")));
        sandbox.run(["fetch", "one", "D"]).ok();
        assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
        assert_eq!(sandbox.json(["fetch", "one", "D"]).ok().num("payload_bytes"), 0);

        let mut grown = vec![b'!'];
        grown.extend(bytes_of(sandbox.path("S/r4194304")));
        sandbox.write("S/r4194304", grown);
        let shifted = sandbox.json(["push", "S", "one"]).ok();
        assert!(shifted.num("new_bytes") <= 2 * max, "one byte in front cost {} bytes", shifted.num("new_bytes"));
    }
}

#[test]
fn the_number_of_chunks_fits_the_limits() {
    let sandbox = Sandbox::new();
    let made = sandbox.json(["init"]).ok();
    let (min, max) = (made.num("chunk_min"), made.num("chunk_max"));
    let len = 40 * max + 12_345;
    sandbox.write("S/noise", rnd(3, usize::try_from(len).unwrap()));
    let pushed = sandbox.json(["push", "S", "r"]).ok();
    let chunks = pushed.num("chunks");
    assert!(chunks >= len / max && chunks <= len / min + 1, "{chunks} chunks of {len} bytes");
    assert_eq!(pushed.num("new_bytes"), len, "the chunks add up to the file");
}

#[test]
fn zeros_cost_nothing_and_come_back_as_holes() {
    let sandbox = Sandbox::new();
    let mut file = vec![0; 40 << 20];
    for at in [0, 10 << 20, (20 << 20) + 77, (40 << 20) - 5] {
        file[at..at + 5].copy_from_slice(b"water");
    }
    sandbox.write("S/dense", &file);
    let sparse = std::fs::File::create(sandbox.path("S/sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let pushed = sandbox.json(["push", "S", "r"]).ok();
    assert!(pushed.num("stored_bytes") < 100_000, "stored {}", pushed.num("stored_bytes"));
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    assert!(allocated_bytes(sandbox.path("D/dense")) < 2 << 20);
    assert!(allocated_bytes(sandbox.path("D/sparse")) < 1 << 20);
    assert_eq!(sandbox.cat("r:dense").ok().stdout, file);
    // The same bytes with and without holes are the same version.
    std::fs::write(sandbox.path("D/sparse"), vec![0; 1 << 20]).unwrap();
    let dense = std::fs::File::options().write(true).open(sandbox.path("D/sparse")).unwrap();
    dense.set_len(1 << 30).unwrap();
    drop(dense);
    assert_eq!(sandbox.json(["verify", "r"]).ok().num("corrupt"), 0);
}

#[test]
fn the_chunks_of_each_length_add_up() {
    const INLINE_MAX: u64 = 4096;
    const HOLE_BLOCK: u64 = 64 << 10;
    let sandbox = Sandbox::new();
    let made = sandbox.json(["init", "--chunk-profile", "64k"]).ok();
    let (min, avg, max) = (made.num("chunk_min"), made.num("chunk_avg"), made.num("chunk_max"));
    assert!(min < HOLE_BLOCK && HOLE_BLOCK <= max && min < avg && avg < max);
    let push = |content: &[u8]| {
        sandbox.write("one/file", content);
        let pushed = sandbox.json(["push", "one", "one"]).ok();
        assert_eq!(pushed.num("bytes"), content.len() as u64);
        (pushed.num("chunks"), pushed.num("new_chunks"), pushed.num("new_bytes"))
    };
    for len in lengths(min, avg, max) {
        // Noise nobody pushed before: every chunk is new, so the lengths of the chunks are what is new.
        let (chunks, new_chunks, new_bytes) = push(&rnd(1_000_000_000 + len, usize::try_from(len).unwrap()));
        if len <= INLINE_MAX {
            assert_eq!((chunks, new_chunks, new_bytes), (0, 0, 0), "{len} bytes are inline");
            continue;
        }
        assert_eq!((new_chunks, new_bytes), (chunks, len), "the chunks of {len} bytes add up");
        // All but the last are at least `min`, none is above `max`.
        assert!((len.div_ceil(max)..=(len - 1) / min + 1).contains(&chunks), "{chunks} chunks of {len} bytes");
        if len <= min {
            assert_eq!(chunks, 1, "{len} bytes are one chunk");
        }
    }
    for len in lengths(min, avg, max) {
        let (chunks, ..) = push(&vec![0; usize::try_from(len).unwrap()]);
        let wanted = if len <= INLINE_MAX || len % HOLE_BLOCK == 0 { 0 } else { 1 };
        assert_eq!(chunks, wanted, "{len} zeros: blocks are holes, the rest is one chunk");
    }
}

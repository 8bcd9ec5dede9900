//! B11: readers whose files fit neither into the memory of their mount nor into the cache of their node.

#![allow(clippy::disallowed_methods, reason = "real processes need real time")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use forebay_tests::{Mounted, S3Server, Sandbox, Serving, allocated_bytes, client, field, rnd, skipped, soak, text};

/// Reads all files twice in an order of its own, past the kernel's cache in the second round, and prints what differs.
const READER: &str = "
import hashlib, os, random, sys
seed, folder = int(sys.argv[1]), sys.argv[2]
sums = dict(line.split()[::-1] for line in open(sys.argv[3]))
for turn in range(2):
    names = sorted(sums)
    random.Random(seed * 2 + turn).shuffle(names)
    for name in names:
        with open(os.path.join(folder, name), 'rb', buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if hashlib.sha256(f.read()).hexdigest() != sums[name]:
                print('differs', name)
";

#[test]
fn eight_readers_read_right_and_memory_stays_bounded() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let sandbox = Sandbox::new();
    for number in 0..64 {
        sandbox.write(format!("S/{number}.bin"), rnd(number, 4 << 20));
    }
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &["--memory", "32MiB"]);
    if !read_by_eight(&sandbox, mounted.dir(), || {}) {
        return skipped("python3 is not installed");
    }
    let peak = mounted.peak_rss_bytes();
    assert!(peak < 128 << 20, "{} MiB", peak >> 20);
    assert!(mounted.log().is_empty(), "{}", mounted.log());
    mounted.umount();
}

/// The most that a chunk has on disk, of the default profile.
const CHUNK_BYTES_MAX: u64 = (1 << 20) + 4096;

/// Eight processes read everything twice; `watch` is called ten times a second meanwhile. `false`: there is no python3.
fn read_by_eight(sandbox: &Sandbox, folder: &Path, mut watch: impl FnMut()) -> bool {
    let sums = Command::new("sh").arg("-c").arg("cd S && sha256sum *").current_dir(sandbox.path("")).output();
    let sums = sandbox.write("sums", sums.expect("a shell runs").stdout);
    let start = |seed: u32| {
        let mut command = Command::new("python3");
        command.arg("-c").arg(READER).arg(seed.to_string()).arg(folder).arg(&sums);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let Ok(mut readers) = (0..8).map(start).collect::<Result<Vec<_>, _>>() else { return false };
    let started = Instant::now();
    while readers.iter_mut().any(|reader| reader.try_wait().expect("a child can be waited for").is_none()) {
        assert!(started.elapsed() < Duration::from_secs(1800), "readers do not come to an end");
        watch();
        thread::sleep(Duration::from_millis(100));
    }
    for reader in readers {
        let output = reader.wait_with_output().expect("a child can be waited for");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
    true
}

/// The whole case has 64 files and 64 MiB of cache; the short form a quarter of both.
#[test]
fn a_cache_that_evicts_under_readers_stays_within_its_limit() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let (files, limit): (u64, u64) = if soak() { (64, 64 << 20) } else { (16, 16 << 20) };
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "evicts");
    sandbox.write("pinned/file", rnd(1000, 2 << 20));
    sandbox.json(["push", "pinned", "p"]).ok();
    let of_pinned: Vec<String> = server.objects().into_keys().filter(|key| key.contains("pack/")).collect();
    for number in 0..files {
        sandbox.write(format!("S/{number}.bin"), rnd(number, 4 << 20));
    }
    sandbox.json(["push", "S", "r"]).ok();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &["--capacity", &limit.to_string()]);
    server.clear_log();
    client(&sandbox, "one", &edge.addr(), &["fetch", "--class", "pinned", "p", "P1"]).run().ok();
    let mut reading = Sandbox::new();
    reading.set_repo("/nowhere/at/all");
    reading.set_env("FOREBAY_NODES", edge.addr());
    let mounted = Mounted::new(&reading, "r", "M", &["--memory", "32MiB"]);
    let extents = Serving::cache_dir(&sandbox, "edge").join("edge/extents");
    let mut most = 0;
    if !read_by_eight(&sandbox, mounted.dir(), || most = most.max(allocated_bytes(&extents))) {
        return skipped("python3 is not installed");
    }
    mounted.umount();
    assert!(most > 0 && most <= limit + 8 * CHUNK_BYTES_MAX, "{most} bytes on disk");
    println!("at most {most} bytes on disk, the limit is {limit}");
    assert!(field(&edge.status()["cache"], "evictions") > 0, "it had to evict");
    client(&sandbox, "two", &edge.addr(), &["fetch", "p", "P2"]).run().ok();
    let sent: u64 = of_pinned.iter().map(|key| server.sent_bytes(key)).sum();
    let stored: usize = of_pinned.iter().filter_map(|key| server.object(key)).map(|pack| pack.len()).sum();
    assert!(sent <= stored as u64, "{sent} bytes of the pinned file's {stored} came from the origin");
}

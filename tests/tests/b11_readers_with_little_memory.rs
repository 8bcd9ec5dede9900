//! B11, the part that a mount shows alone: readers whose files do not fit into its memory.

use std::process::{Command, Stdio};

use forebay_tests::{Mounted, Sandbox, rnd, skipped, text};

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
    let sums = Command::new("sh").arg("-c").arg("cd S && sha256sum *").current_dir(sandbox.path("")).output().unwrap();
    let sums = sandbox.write("sums", sums.stdout);
    let mounted = Mounted::new(&sandbox, "r", "M", &["--memory", "32MiB"]);
    let start = |seed: u32| {
        let mut command = Command::new("python3");
        command.arg("-c").arg(READER).arg(seed.to_string()).arg(mounted.dir()).arg(&sums);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let readers: Vec<_> = (0..8).map(start).collect();
    for reader in readers {
        let Ok(reader) = reader else { return skipped("python3 is not installed") };
        let output = reader.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
    let peak = mounted.peak_rss_bytes();
    assert!(peak < 128 << 20, "{} MiB", peak >> 20);
    assert!(mounted.log().is_empty(), "{}", mounted.log());
    mounted.umount();
}

//! B20: memory-mapped reads.

use std::process::Command;

use forebay_tests::{Mounted, Sandbox, rnd, skipped, text};

/// Hashes a file through a shared and a private map, then touches single pages in a seeded order.
const MAPS: &str = "
import hashlib, mmap, random, sys
f = open(sys.argv[1], 'rb')
for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
    print(hashlib.sha256(mmap.mmap(f.fileno(), 0, flags=flags, prot=mmap.PROT_READ)[:]).hexdigest())
m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
m.madvise(mmap.MADV_RANDOM)
pages = list(range(0, len(m), mmap.PAGESIZE))
random.Random(20).shuffle(pages)
touched = {at: m[at:at + mmap.PAGESIZE] for at in pages}
print(hashlib.sha256(b''.join(touched[at] for at in sorted(touched))).hexdigest())
";

/// A shared map to write through, of a file opened for reading: refused.
const WRITABLE: &str = "
import errno, mmap, sys
f = open(sys.argv[1], 'rb')
try:
    mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
except OSError as e:
    print(errno.errorcode[e.errno])
try:
    open(sys.argv[1], 'r+b')
except OSError as e:
    print(errno.errorcode[e.errno])
";

fn python(script: &str, path: &std::path::Path) -> Option<String> {
    let output = Command::new("python3").arg("-c").arg(script).arg(path).output().ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn maps_are_equal_to_the_source_and_cannot_be_written() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/large", rnd(1, 32 << 20));
    sandbox.write("S/small", rnd(2, 4097));
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    for name in ["large", "small"] {
        let Some(wanted) = python(MAPS, &sandbox.path("S").join(name)) else {
            return skipped("python3 is not installed");
        };
        assert_eq!(wanted.lines().count(), 3);
        assert_eq!(python(MAPS, &mounted.path(name)), Some(wanted));
        let refused = python(WRITABLE, &mounted.path(name));
        assert_eq!(refused.as_deref(), Some("EACCES\nEROFS\n"));
    }
    assert!(mounted.log().is_empty(), "{}", mounted.log());
    mounted.umount();
}

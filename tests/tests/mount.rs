//! `forebay mount` and `forebay umount`: equal trees, every kind of write refused, reads at random, damage, limits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use forebay_tests::{
    Class, Mounted, S3Server, Sandbox, Seeded, assert_tree_equal, bytes_of, files_below, is_root, mount_sources, rnd,
    set_mtime, skipped, tree_of, wait_until, write_rnd_file,
};
use rustix::process::Signal;

/// `open` without the page cache: the server sees each read as it was asked.
const O_DIRECT: i32 = 0o40000;
const EROFS: i32 = 30;
const EIO: i32 = 5;

/// True, and a line that says why, if nothing can be mounted here.
fn no_mounts() -> bool {
    let why = Mounted::impossible();
    if let Some(why) = &why {
        skipped(why);
    }
    why.is_some()
}

/// Everything a folder can have.
fn make_source(sandbox: &Sandbox) {
    for (number, len) in [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 300_000, 1_048_577].into_iter().enumerate() {
        sandbox.write(format!("S/sizes/{len}"), rnd(number as u64, len));
    }
    sandbox.mkdir("S/empty/deeper");
    sandbox.write("S/two words/back\\slash", "1");
    sandbox.write("S/sizes/caf\u{e9}", "2");
    let mut sparse = vec![0; 1_000_000];
    sparse[400_000..400_010].copy_from_slice(b"0123456789");
    sandbox.write("S/sparse", sparse);
    let hole = File::create(sandbox.path("S/hole")).expect("a file of the test can be made");
    hole.set_len(50 << 20).expect("holes can be made");
    hole.write_all_at(b"end", (50 << 20) - 3).expect("a file of the test can be written");
    write_rnd_file(sandbox.path("S/large"), 77, 40 << 20);
    symlink("sizes/1", sandbox.path("S/link")).expect("links can be made");
    symlink("../nowhere", sandbox.path("S/empty/dangling")).expect("links can be made");
    fs::hard_link(sandbox.path("S/large"), sandbox.path("S/empty/deeper/same")).expect("links can be made");
    fs::hard_link(sandbox.path("S/large"), sandbox.path("S/zz same")).expect("links can be made");
    for (path, mode) in [("S/sizes/1", 0o755), ("S/sizes/4097", 0o400), ("S/two words", 0o750)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(sandbox.path(path), mode).expect("modes can be set");
    }
    set_mtime(sandbox.path("S/sizes/4096"), -1, 500_000_000);
    set_mtime(sandbox.path("S/sizes/65536"), 981_173_106, 123_456_789);
    set_mtime(sandbox.path("S/link"), 1_000_000_000, 1);
    set_mtime(sandbox.path("S/empty"), 978_307_200, 1);
}

#[test]
fn the_tree_is_equal_and_goes_away_without_a_trace() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    make_source(&sandbox);
    sandbox.run(["push", "S", "a/b"]).ok();
    let mounted = Mounted::new(&sandbox, "a/b", "M", &[]);
    let result = mounted.result();
    assert_eq!((result["version"].as_str(), result["dir"].as_str()), (Some("a/b@1"), mounted.dir().to_str()));
    assert_eq!(result["snapshot"].as_str().map(str::len), Some(64));
    let wanted = tree_of(sandbox.path("S"));
    assert_tree_equal(&tree_of(mounted.dir()), &wanted);
    assert_tree_equal(&tree_of(mounted.dir()), &wanted);
    let meta = fs::metadata(mounted.path("large")).unwrap();
    assert_eq!((meta.nlink(), meta.uid()), (3, rustix::process::getuid().as_raw()));
    assert!(fs::metadata(mounted.path("hole")).unwrap().blocks() * 512 < 1 << 20, "holes take no blocks");
    let sources = mount_sources(mounted.dir());
    assert_eq!(sources, [format!("forebay[{}]:a/b@1", mounted.pid())]);
    assert_eq!(mounted.log(), "");
    let outcome = mounted.umount();
    assert_eq!((outcome.str("version"), outcome.result()["was_dead"].as_bool()), ("a/b@1".to_owned(), Some(false)));
    assert_eq!(fs::read_dir(sandbox.path("M")).unwrap().count(), 0);
}

#[test]
fn an_older_version_and_an_empty_one() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.mkdir("S");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.write("S/new", "new");
    sandbox.run(["push", "S", "r"]).ok();
    let (old, new) = (Mounted::new(&sandbox, "r@1", "M1", &[]), Mounted::new(&sandbox, "r", "M2", &[]));
    assert_eq!(fs::read_dir(old.dir()).unwrap().count(), 0);
    assert_eq!(bytes_of(new.path("new")), b"new");
    let again = sandbox.json(["mount", "r@1", "M1"]).ends(Class::Usage).says("mounted");
    assert!(again.error()["message"].as_str().unwrap().contains("M1"));
    old.umount();
    new.umount();
}

#[test]
fn every_kind_of_write_is_refused() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/file", "content");
    sandbox.mkdir("S/folder");
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    refuses_writes(&mounted);
    if is_root() {
        // Somebody who mounts it anew as writable meets the server's own refusal.
        let remounted = Command::new("mount").args(["-o", "remount,rw"]).arg(mounted.dir()).status();
        if remounted.is_ok_and(|status| status.success()) {
            refuses_writes(&mounted);
        }
    }
    assert_tree_equal(&tree_of(mounted.dir()), &tree_of(sandbox.path("S")));
    mounted.umount();
}

fn refuses_writes(mounted: &Mounted<'_>) {
    let (file, folder, new) = (mounted.path("file"), mounted.path("folder"), mounted.path("new"));
    let mode: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    let time = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let raw = |result: rustix::io::Result<()>| result.map_err(io::Error::from);
    let open =
        |options: &mut OpenOptions, path: &Path| options.open(path).and_then(|file| file.write_at(b"x", 0)).map(drop);
    let fifo = || rustix::fs::mknodat(rustix::fs::CWD, &new, rustix::fs::FileType::Fifo, 0o600.into(), 0);
    let set = || rustix::fs::setxattr(&file, "user.x", b"1", rustix::fs::XattrFlags::empty());
    let times = || rustix::fs::utimensat(rustix::fs::CWD, &file, &time, rustix::fs::AtFlags::empty());
    let attempts: [(&str, io::Result<()>); 16] = [
        ("create", open(OpenOptions::new().write(true).create_new(true), &new)),
        ("write", open(OpenOptions::new().write(true), &file)),
        ("append", open(OpenOptions::new().append(true), &file)),
        ("truncate", open(OpenOptions::new().write(true).truncate(true), &file)),
        ("mkdir", fs::create_dir(&new)),
        ("rmdir", fs::remove_dir(&folder)),
        ("unlink", fs::remove_file(&file)),
        ("rename", fs::rename(&file, &new)),
        ("symlink", symlink("x", &new)),
        ("link", fs::hard_link(&file, &new)),
        ("chmod", fs::set_permissions(&file, mode)),
        ("chown", std::os::unix::fs::chown(&file, Some(1), None)),
        ("times", raw(times())),
        ("mkfifo", raw(fifo())),
        ("setxattr", raw(set())),
        ("removexattr", raw(rustix::fs::removexattr(&file, "user.x"))),
    ];
    for (what, result) in attempts {
        assert_eq!(result.expect_err(what).raw_os_error(), Some(EROFS), "{what}");
    }
}

/// Offsets around everything that could be a border, and past the end.
#[test]
fn reads_at_random_are_those_of_the_source() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.run(["init", "--chunk-profile", "64k"]).ok();
    make_source(&sandbox);
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &["--read-ahead", "1MiB"]);
    let mut random = Seeded::new(20);
    for name in ["large", "hole", "sparse", "sizes/65537", "sizes/4096", "sizes/1", "sizes/0"] {
        let wanted = bytes_of(sandbox.path("S").join(name));
        let cached = File::open(mounted.path(name)).unwrap();
        let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(mounted.path(name)).unwrap();
        for round in 0..400 {
            let from = random.index(wanted.len() + 10_000);
            let len = [1, 4096, 65_536, 300_000][random.index(4)] + random.index(3) - 1;
            let mut got = vec![0xaa; len];
            let file = if round % 2 == 0 { &direct } else { &cached };
            let count = read_full(file, &mut got, from as u64);
            let end = wanted.len().min(from + len);
            let slice = &wanted[from.min(wanted.len())..end.max(from.min(wanted.len()))];
            assert_eq!(count, slice.len(), "{name} at {from}, {len} bytes");
            assert!(got[..count] == *slice, "{name} at {from}, {len} bytes");
        }
    }
    mounted.umount();
}

/// One system call: a file system that gives less than was asked for before the end is wrong.
fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> usize {
    file.read_at(buffer, offset).expect("the mount has the bytes")
}

#[test]
fn readers_at_the_same_time_read_right() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    for number in 0..40 {
        sandbox.write(format!("S/{number}"), rnd(number, 200_000));
    }
    write_rnd_file(sandbox.path("S/large"), 99, 64 << 20);
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    let wanted = bytes_of(sandbox.path("S/large"));
    thread::scope(|scope| {
        for reader in 0..8_usize {
            let (mounted, wanted) = (&mounted, &wanted);
            scope.spawn(move || {
                let mut file = File::open(mounted.path("large")).unwrap();
                let part = wanted.len() / 8;
                for step in 0..8 {
                    let from = (reader + step) % 8 * part;
                    let mut got = vec![0; part];
                    file.seek(SeekFrom::Start(from as u64)).unwrap();
                    file.read_exact(&mut got).unwrap();
                    assert!(got == wanted[from..from + part], "reader {reader}, step {step}");
                }
                for number in 0..40 {
                    let number = (number + reader as u64 * 5) % 40;
                    assert!(bytes_of(mounted.path(number.to_string())) == rnd(number, 200_000));
                }
            });
        }
    });
    mounted.umount();
}

#[test]
fn holes_are_found_by_seeking() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    make_source(&sandbox);
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    let file = File::open(mounted.path("hole")).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert_eq!(data, (50 << 20) - 65_536);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap(), 0);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).unwrap(), 50 << 20);
    let past = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(50 << 20));
    assert_eq!(past, Err(rustix::io::Errno::NXIO));
    drop(file);
    mounted.umount();
}

#[test]
fn readers_that_wait_for_a_slow_origin_hold_up_nobody_else() {
    if no_mounts() {
        return;
    }
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    for number in 0..40 {
        sandbox.write(format!("S/{number}"), rnd(number, 300_000));
    }
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &["--read-ahead", "0"]);
    assert_eq!(fs::read_dir(mounted.dir()).unwrap().count(), 40);
    assert!(bytes_of(mounted.path("0")) == rnd(0, 300_000));
    server.set_download_rate(Some(50_000));
    thread::scope(|scope| {
        // More than there are threads of any kind in the server, each for longer than the names below may take.
        let readers: Vec<_> = (1..40)
            .map(|number| {
                let path = mounted.path(number.to_string());
                scope.spawn(move || bytes_of(path) == rnd(number, 300_000))
            })
            .collect();
        let (told, heard) = std::sync::mpsc::channel();
        assert!(heard.recv_timeout(Duration::from_millis(500)).is_err(), "time for all of them to be waiting");
        scope.spawn(move || {
            let absent = (0..100).filter(|number| fs::metadata(mounted.path(format!("absent{number}"))).is_err());
            let absent = absent.count();
            let read = bytes_of(mounted.path("0")) == rnd(0, 300_000);
            told.send((absent, read)).expect("the test waits");
            mounted
        });
        assert_eq!(heard.recv_timeout(Duration::from_secs(3)), Ok((100, true)));
        server.set_download_rate(None);
        for reader in readers {
            assert!(reader.join().unwrap());
        }
    });
}

#[test]
fn a_damaged_chunk_fails_its_reads_only_and_heals() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.run(["init", "--chunk-profile", "64k"]).ok();
    let bad = rnd(1, 2_000_000);
    sandbox.write("S/bad", &bad);
    sandbox.write("S/good", rnd(2, 2_000_000));
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &["--read-ahead", "0"]);
    // Noise is stored as it is: the byte can be found in its pack.
    let needle = &bad[1_000_000..1_000_032];
    let packs = files_below(sandbox.repo_dir().join("pack"));
    let place = packs.iter().find_map(|pack| {
        let at = bytes_of(pack).windows(32).position(|window| window == needle)?;
        Some((pack.clone(), at as u64))
    });
    let (pack, at) = place.expect("the repository has the bytes");
    fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let flip = || {
        let file = OpenOptions::new().read(true).write(true).open(&pack).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    flip();
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(mounted.path("bad")).unwrap();
    let read = |from: usize| {
        let mut got = vec![0; 1000];
        file.read_exact_at(&mut got, from as u64).map(|()| got == bad[from..from + 1000])
    };
    for _ in 0..2 {
        assert_eq!(read(1_000_000).unwrap_err().raw_os_error(), Some(EIO));
    }
    assert!(read(0).unwrap() && read(1_990_000).unwrap());
    assert!(bytes_of(mounted.path("good")) == rnd(2, 2_000_000));
    assert_eq!(fs::read(mounted.path("bad")).unwrap_err().raw_os_error(), Some(EIO));
    let log = mounted.log();
    assert!(log.contains("unreadable: /bad: chunk ") && log.contains("damaged"), "{log}");
    flip();
    assert!(read(1_000_000).unwrap());
    assert!(bytes_of(mounted.path("bad")) == bad);
    drop(file);
    mounted.umount();
}

#[test]
fn a_folder_of_20000_names() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    for number in 0..20_000 {
        sandbox.write(format!("S/{number:05}"), number.to_string());
    }
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    let listed: Vec<_> = fs::read_dir(mounted.dir()).unwrap().map(Result::unwrap).collect();
    assert_eq!(listed.len(), 20_000);
    let mut numbers: Vec<u64> = listed.iter().map(std::os::unix::fs::DirEntryExt::ino).collect();
    // An entry keeps its folder open.
    for entry in listed {
        let meta = entry.metadata().unwrap();
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), meta.ino());
        assert_eq!(meta.len(), entry.file_name().to_string_lossy().parse::<u64>().unwrap().to_string().len() as u64);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 20_000);
    assert_eq!(bytes_of(mounted.path("12345")), b"12345");
    mounted.umount();
}

#[test]
fn memory_stays_bounded_whatever_is_read() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    write_rnd_file(sandbox.path("S/large"), 5, 1 << 30);
    sandbox.run(["push", "S", "r"]).ok();
    for (memory, most) in [("512MiB", 300 << 20), ("64MiB", 160 << 20)] {
        let mounted = Mounted::new(&sandbox, "r", "M", &["--memory", memory]);
        let copied = Command::new("cmp").arg(mounted.path("large")).arg(sandbox.path("S/large")).status();
        assert!(copied.unwrap().success());
        let peak = mounted.peak_rss_bytes();
        assert!(peak < most, "{} MiB with {memory}", peak >> 20);
        mounted.umount();
    }
}

#[test]
fn what_cannot_be_mounted_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("S/file", "content");
    sandbox.run(["push", "S", "r"]).ok();
    if no_mounts() {
        sandbox.mkdir("M");
        sandbox.json(["mount", "r", "M"]).ends(Class::Failed).says("/dev/fuse");
        return;
    }
    sandbox.write("full/file", "1");
    sandbox.mkdir("empty");
    sandbox.json(["mount", "r", "absent"]).ends(Class::Usage).says("absent").says("does not exist");
    sandbox.json(["mount", "r", "S/file"]).ends(Class::Usage).says("S/file").says("not a folder");
    sandbox.json(["mount", "r", "full"]).ends(Class::Usage).says("full").says("not empty");
    sandbox.json(["mount", "unknown", "empty"]).ends(Class::NotFound).says("unknown");
    sandbox.json(["mount", "r@9", "empty"]).ends(Class::NotFound).says("no version 9");
    sandbox.run(["mount", "r", "empty", "--read-ahead", "much"]).ends(Class::Usage).says("64KiB");
    sandbox.run(["mount", "r", "empty", "--memory", "1MiB"]).ends(Class::Usage).says("memory");
    sandbox.json(["umount", "empty"]).ends(Class::Usage).says("empty");
    sandbox.json(["umount", "absent"]).ends(Class::Usage).says("absent");
    assert_eq!(bytes_of(sandbox.path("full/file")), b"1");
    if Path::new("/proc/self/mounts").exists() {
        sandbox.json(["umount", "/proc"]).ends(Class::Usage).says("/proc");
    }
    let elsewhere = sandbox.command(["mount", "r", "empty"]).json().env("FOREBAY_REPO", sandbox.path("none")).run();
    elsewhere.ends(Class::NotFound).says("none");
}

#[test]
fn in_the_foreground_it_stays_until_it_is_told() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/file", "content");
    sandbox.mkdir("M");
    sandbox.run(["push", "S", "r"]).ok();
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = sandbox.command(["mount", "r", "M", "--foreground"]).json().start();
        wait_until("it answers", Duration::from_secs(20), || sandbox.path("M/file").exists());
        assert_eq!(bytes_of(sandbox.path("M/file")), b"content");
        assert!(running.is_running());
        running.signal(signal);
        let outcome = running.wait().ok();
        assert_eq!(outcome.num("files"), 1);
        assert!(mount_sources(&sandbox.path("M")).is_empty());
    }
    // Somebody else takes it away.
    let running = sandbox.command(["mount", "r", "M", "--foreground"]).start();
    wait_until("it answers", Duration::from_secs(20), || sandbox.path("M/file").exists());
    sandbox.run(["umount", "M"]).ok();
    running.wait().ok();
}

#[test]
fn a_mount_in_use_is_not_taken_away_unless_asked_to() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/file", "content");
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    let mut open = File::open(mounted.path("file")).unwrap();
    sandbox.json(["umount", "M"]).ends(Class::Failed).says("in use").says("--lazy");
    assert!(mounted.path("file").exists());
    sandbox.run(["umount", "--lazy", "M"]).ok();
    assert!(mount_sources(mounted.dir()).is_empty());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    drop(open);
    let stat = format!("/proc/{}", mounted.pid());
    wait_until("the server is gone", Duration::from_secs(10), || !Path::new(&stat).exists());
}

#[test]
fn a_push_beside_a_mount_goes_on() {
    if no_mounts() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/file", rnd(1, 1_000_000));
    sandbox.run(["push", "S", "r"]).ok();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    // Whoever holds the lock of the index is the only one who can write it.
    let open = fs::read_dir(format!("/proc/{}/fd", mounted.pid())).unwrap();
    let files: Vec<_> = open.filter_map(|item| fs::read_link(item.ok()?.path()).ok()).collect();
    assert!(files.iter().any(|path| path.starts_with(sandbox.cache_dir())), "{files:?}");
    assert!(!files.iter().any(|path| path.ends_with("LOCK")), "{files:?}");
    sandbox.write("S/file", rnd(2, 1_000_000));
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    assert!(bytes_of(mounted.path("file")) == rnd(1, 1_000_000), "a snapshot never changes");
    mounted.umount();
}

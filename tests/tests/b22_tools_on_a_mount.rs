//! B22: df, find, cp, rsync, git on a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_tests::{Mounted, Sandbox, assert_tree_equal, rnd, skipped, text, tree_of};

/// Runs a program to a good end without a complaint; `None` if it is not installed.
fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Option<String> {
    let output = Command::new(program).args(args).env("GIT_OPTIONAL_LOCKS", "0").output().ok()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{program}: {}", text(&output.stderr));
    Some(text(&output.stdout))
}

fn below(dir: &Path, suffix: &str) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn make_source(sandbox: &Sandbox) -> bool {
    for number in 0..300_usize {
        sandbox.write(format!("S/d{}/f{number}", number % 7), rnd(number as u64, number * 97));
    }
    std::os::unix::fs::symlink("d1", sandbox.path("S/link")).expect("links can be made");
    for number in 0..50_u32 {
        sandbox.write(format!("S/repo/sub{}/file{number}", number % 3), format!("line {number}\n"));
    }
    let repo = sandbox.path("S/repo");
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
        Command::new("git").arg("-C").arg(&repo).args(identity).args(args).output()
    };
    let commands: [&[&str]; 3] = [&["init", "-q"], &["add", "."], &["commit", "-q", "-m", "one"]];
    commands.iter().all(|args| git(args).is_ok_and(|output| output.status.success()))
}

/// Path → the numbers that a listing and that `stat` give.
fn numbers(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a mount can be listed") {
            let entry = entry.expect("a mount can be listed");
            let meta = fs::symlink_metadata(entry.path()).expect("what is listed is there");
            assert_eq!(entry.ino(), meta.ino(), "{}", entry.path().display());
            assert!(meta.ino() != 0 && meta.ino() != 0xffff_ffff);
            found.insert(entry.path(), meta.ino());
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn tools_find_what_they_expect() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let sandbox = Sandbox::new();
    let has_git = make_source(&sandbox);
    // Long ago: rsync compares whole seconds, and takes a folder that it makes in the second of the source's for equal.
    let past = ["-exec", "touch", "-h", "-d", "2001-02-03 04:05:06.789012345", "{}", "+"];
    let find: Vec<_> = std::iter::once(sandbox.path("S").into_os_string()).chain(past.map(Into::into)).collect();
    run("find", &find).expect("find and touch are everywhere");
    sandbox.run(["push", "S", "r"]).ok();
    let (source, wanted) = (sandbox.path("S"), tree_of(sandbox.path("S")));
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    let dir = mounted.dir().to_owned();

    let df = run("df", &[OsStr::new("-P"), dir.as_os_str()]).unwrap();
    let line = df.lines().last().unwrap();
    assert!(line.starts_with("forebay[") && line.ends_with("/M"), "{df}");
    let statistics = rustix::fs::statvfs(&dir).unwrap();
    assert!(statistics.f_blocks > 0 && statistics.f_namemax >= 255);
    assert_eq!(statistics.f_files, wanted.len() as u64 - 1, "the root is no entry");
    let list = |dir: &Path| run("find", &[dir.as_os_str(), "-type".as_ref(), "f".as_ref()]).unwrap().lines().count();
    assert_eq!(list(&dir), list(&source));

    run("cp", &[OsStr::new("-a"), dir.as_os_str(), sandbox.path("D0").as_os_str()]).unwrap();
    assert_tree_equal(&tree_of(sandbox.path("D0")), &wanted);

    let from = below(&dir, "/");
    let rsync = |args: &str| run("rsync", &[OsStr::new(args), from.as_os_str(), sandbox.path("D1/").as_os_str()]);
    let has_rsync = rsync("-a").is_some();
    if has_rsync {
        assert_eq!(rsync("-ai").as_deref(), Some(""));
        assert_tree_equal(&tree_of(sandbox.path("D1")), &wanted);
    } else {
        skipped("rsync is not installed");
    }
    let before = numbers(&dir);
    mounted.umount();
    let mounted = Mounted::new(&sandbox, "r", "M", &[]);
    if has_rsync {
        assert_eq!(rsync("-ai").as_deref(), Some(""));
    }
    if has_git {
        let repo = below(&dir, "/repo");
        let status = run("git", &[OsStr::new("-C"), repo.as_os_str(), "status".as_ref(), "--porcelain".as_ref()]);
        assert_eq!(status.as_deref(), Some(""));
    } else {
        skipped("git is not installed");
    }
    assert_eq!(numbers(&dir), before);
    assert_eq!(before.len(), wanted.len() - 1);
    assert!(before.keys().all(|path| path.as_os_str().as_bytes().starts_with(dir.as_os_str().as_bytes())));
    assert!(mounted.log().is_empty(), "{}", mounted.log());
    mounted.umount();
}

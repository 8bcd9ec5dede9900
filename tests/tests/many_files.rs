//! Trees whose lists of files are too long for memory, and what goes wrong in the middle of them.

use std::os::unix::fs::{MetadataExt, symlink};

use forebay_tests::{Class, Sandbox, assert_tree_equal, rnd, tree_of};

/// Bytes that lie in the manifest itself: three thousand such files are more than is kept in memory.
const INLINE: usize = 4000;

fn many(sandbox: &Sandbox) {
    for number in 0..3000_u64 {
        sandbox.write(format!("S/{}/{}/{number}", number % 7, number % 11), rnd(number, INLINE));
    }
    for number in 0..40 {
        sandbox.mkdir(format!("S/3/empty-{number}"));
        symlink(format!("../{number}"), sandbox.path(format!("S/4/link-{number}")))
            .expect("the sandbox can be written");
        // The second name lies before the first and the third behind it.
        let first = sandbox.write(format!("S/5/first-{number}"), rnd(number, 100_000));
        std::fs::hard_link(&first, sandbox.path(format!("S/1/second-{number}"))).expect("the sandbox can be written");
        std::fs::hard_link(&first, sandbox.path(format!("S/6/third-{number}"))).expect("the sandbox can be written");
    }
}

#[test]
fn a_long_list_of_files_is_pushed_and_fetched_whole() {
    let mut sandbox = Sandbox::new();
    many(&sandbox);
    let first = sandbox.json(["push", "S", "set"]).ok();
    assert_eq!((first.num("files"), first.num("bytes")), (3120, 3000 * INLINE as u64 + 120 * 100_000));
    let unchanged = sandbox.json(["push", "S", "set"]).ok();
    assert_eq!((unchanged.num("stored_bytes"), unchanged.result()["committed"].as_bool()), (0, Some(false)));
    sandbox.run(["fetch", "set", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    let inode = |path: &str| std::fs::metadata(sandbox.path(path)).unwrap().ino();
    assert_eq!((inode("D/1/second-9"), inode("D/6/third-9")), (inode("D/5/first-9"), inode("D/5/first-9")));

    // Folders become files and files folders, much goes, something comes.
    std::fs::remove_dir_all(sandbox.path("S/2")).unwrap();
    sandbox.write("S/2", "a file now");
    std::fs::remove_dir_all(sandbox.path("S/3/empty-1")).unwrap();
    std::fs::remove_file(sandbox.path("S/4/link-1")).unwrap();
    sandbox.write("S/4/link-1/new", rnd(1, 300_000));
    sandbox.run(["push", "S", "set"]).ok();
    sandbox.run(["fetch", "--delete", "set", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));

    // Without a cache folder the lists lie with the system's temporary files.
    sandbox.set_env("FOREBAY_CACHE", "/proc/no-cache");
    sandbox.run(["push", "S", "set"]).ok();
    sandbox.run(["fetch", "set", "E"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("E")), &tree_of(sandbox.path("S")));
}

#[test]
fn a_file_that_cannot_be_read_ends_a_push_in_the_middle_of_many() {
    let sandbox = Sandbox::new();
    many(&sandbox);
    // The kernel's own file gives an error at its first byte, whoever reads it.
    symlink("/proc/self/mem", sandbox.path("2-mem")).unwrap();
    let failed =
        sandbox.json(["checkpoint", "save", "S/1", "2-mem", "S/4", "S/5", "run", "--step", "7"]).ends(Class::Failed);
    assert!(failed.error()["message"].as_str().unwrap().contains("2-mem"), "{}", failed.error());
    sandbox.json(["log", "run"]).ends(Class::NotFound);
    sandbox.run(["push", "S", "set"]).ok();
    sandbox.run(["fetch", "set", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

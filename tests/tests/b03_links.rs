//! B03: symbolic links are kept, never followed; the path itself may be one.

use std::os::unix::fs::symlink;
use std::time::Duration;

use forebay_tests::{Sandbox, assert_tree_equal, contains_bytes, tree_of};

#[test]
fn links_are_kept_and_not_followed() {
    let sandbox = Sandbox::new();
    sandbox.write("W/real/sub/f", "x");
    sandbox.write("secret", "do-not-follow-me-0123456789");
    let real = sandbox.path("W/real");
    symlink("real", sandbox.path("W/alias")).unwrap();
    symlink(".", real.join("loop")).unwrap();
    symlink("nowhere", real.join("dangling")).unwrap();
    symlink("sub", real.join("dirlink")).unwrap();
    symlink(sandbox.path("secret"), real.join("abs")).unwrap();
    symlink("../../secret", real.join("up")).unwrap();

    let first = sandbox.command(["push", "W/real", "r1"]).json().limit_s(20).run().ok();
    assert!(first.elapsed < Duration::from_secs(5), "took {:?}", first.elapsed);
    assert_eq!((first.num("files"), first.num("links"), first.num("dirs")), (1, 5, 1));
    assert!(!contains_bytes(sandbox.repo_dir(), b"do-not-follow-me"), "a link was followed");
    let second = sandbox.json(["push", "W/alias", "r2"]).ok();
    assert_eq!(first.str("snapshot"), second.str("snapshot"));

    sandbox.run(["fetch", "r1", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(&real));
    let listed = sandbox.json(["ls", "r1"]).ok();
    let secret = sandbox.path("secret");
    for (name, target) in [
        ("loop", "."),
        ("dangling", "nowhere"),
        ("dirlink", "sub"),
        ("up", "../../secret"),
        ("abs", secret.to_str().unwrap()),
    ] {
        let entry = listed.entries().into_iter().find(|entry| entry["path"] == name).unwrap();
        assert_eq!((&entry["type"], &entry["target"]), (&"link".into(), &target.into()), "{name}");
    }
    let names = listed.listed_paths();
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!(names, unique, "no name twice in one folder");
    sandbox.run(["cat", "r1:dangling"]).ends(forebay_tests::Class::Usage).says("nowhere");
}

#[test]
fn a_link_planted_in_the_destination_is_not_written_through() {
    let sandbox = Sandbox::new();
    sandbox.write("S/sub/f", "new");
    sandbox.write("S/g", "new");
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.write("outside/f", "precious");
    sandbox.write("target", "precious");
    sandbox.mkdir("D");
    symlink(sandbox.path("outside"), sandbox.path("D/sub")).unwrap();
    symlink(sandbox.path("target"), sandbox.path("D/g")).unwrap();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_eq!(std::fs::read(sandbox.path("outside/f")).unwrap(), b"precious");
    assert_eq!(std::fs::read(sandbox.path("target")).unwrap(), b"precious");
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn hard_links_stay_one_file() {
    use std::os::unix::fs::MetadataExt;
    let sandbox = Sandbox::new();
    let first = sandbox.write("S/a/one", vec![1; 300_000]);
    sandbox.mkdir("S/b");
    std::fs::hard_link(&first, sandbox.path("S/b/two")).unwrap();
    std::fs::hard_link(&first, sandbox.path("S/three")).unwrap();
    let pushed = sandbox.json(["push", "S", "r"]).ok();
    assert!(pushed.num("new_bytes") <= 300_000, "stored once");
    for _ in 0..2 {
        sandbox.run(["fetch", "r", "D"]).ok();
        let inode = |name: &str| std::fs::metadata(sandbox.path(name)).unwrap().ino();
        assert_eq!(inode("D/a/one"), inode("D/b/two"));
        assert_eq!(inode("D/a/one"), inode("D/three"));
        assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
    }
}

//! B04: modes, times, empty things, and the second fetch; as whoever runs the tests and as an ordinary user.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use forebay_tests::{Sandbox, User, assert_tree_equal, set_mtime, tree_of};

fn chmod(sandbox: &Sandbox, path: &str, mode: u32) {
    std::fs::set_permissions(sandbox.path(path), Permissions::from_mode(mode)).expect("modes can be set");
}

fn make_source(sandbox: &Sandbox) {
    sandbox.mkdir("S/empty/deeper");
    sandbox.write("S/zero", "");
    sandbox.write("S/ro/w.bin", "1");
    sandbox.write("S/bin/run", "#!/bin/sh\necho ok\n");
    sandbox.write("S/bin/large", vec![9; 5_000_000]);
    chmod(sandbox, "S/bin/run", 0o755);
    chmod(sandbox, "S/bin/large", 0o400);
    chmod(sandbox, "S/ro/w.bin", 0o444);
    set_mtime(sandbox.path("S/ro/w.bin"), 981_173_106, 123_456_789);
    set_mtime(sandbox.path("S/zero"), -1, 500_000_000);
    sandbox.give();
    chmod(sandbox, "S/ro", 0o555);
    set_mtime(sandbox.path("S/empty"), 978_307_200, 1);
}

fn case(user: User) {
    let sandbox = Sandbox::for_user(user);
    make_source(&sandbox);
    sandbox.run(["push", "S", "r"]).ok();
    let first = sandbox.command(["fetch", "r", "D"]).json().prelude("umask 077").run().ok();
    assert_eq!(first.num("files_written"), 4);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));

    let second = sandbox.command(["fetch", "r", "D"]).json().prelude("umask 077").run().ok();
    assert_eq!((second.num("files_written"), second.num("payload_bytes"), second.num("bytes_written")), (0, 0, 0));
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));

    chmod(&sandbox, "S/ro", 0o755);
    chmod(&sandbox, "S/ro/w.bin", 0o644);
    sandbox.write("S/ro/w.bin", "22");
    chmod(&sandbox, "S/ro/w.bin", 0o444);
    sandbox.give();
    chmod(&sandbox, "S/ro", 0o555);
    sandbox.run(["push", "S", "r"]).ok();
    let third = sandbox.json(["fetch", "r", "D"]).ok();
    assert_eq!(third.num("files_written"), 1);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn as_whoever_runs_the_tests() {
    case(User::Own);
}

#[test]
fn as_an_ordinary_user() {
    case(User::Ordinary);
}

#[test]
fn a_change_of_mode_or_time_alone_moves_no_bytes() {
    let sandbox = Sandbox::new();
    sandbox.write("S/f", vec![3; 200_000]);
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    chmod(&sandbox, "S/f", 0o600);
    set_mtime(sandbox.path("S/f"), 1_000_000_000, 7);
    assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("new_bytes"), 0);
    let fetched = sandbox.json(["fetch", "r", "D"]).ok();
    assert_eq!((fetched.num("files_written"), fetched.num("payload_bytes")), (0, 0));
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn a_file_changed_in_the_destination_is_put_right() {
    let sandbox = Sandbox::new();
    sandbox.write("S/small", vec![1; 10_000]);
    sandbox.write("S/large", (0..6_000_000_u32).map(|n| (n / 7).to_le_bytes()[0]).collect::<Vec<_>>());
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    for name in ["small", "large"] {
        // The length and the times stay: only the bytes tell.
        let path = sandbox.path("D").join(name);
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[5_000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
    let fetched = sandbox.json(["fetch", "r", "D"]).ok();
    assert_eq!(fetched.num("files_written"), 2);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

//! B21: the mount process is killed; as whoever runs the tests and as an ordinary user.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_tests::{Class, Mounted, Sandbox, User, is_root, mount_sources, rnd, skipped, text, wait_until};

/// A command that the user of the sandbox runs: nobody but who mounted looks into a mount, not even root.
fn user_command(user: User, program: &str) -> Command {
    if user == User::Own || !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}

fn reads_right(user: User, sandbox: &Sandbox) {
    let compared = user_command(user, "cmp").arg(sandbox.path("M/file")).arg(sandbox.path("S/file")).output();
    let compared = compared.expect("cmp is installed");
    assert!(compared.status.success(), "{}", text(&compared.stderr));
}

fn case(user: User) {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    let opened = user_command(user, "sh").args(["-c", "exec 9<>/dev/fuse && fusermount3 -V"]).output();
    let opened = opened.expect("there is a shell");
    if (user == User::Ordinary || !is_root()) && !opened.status.success() {
        let why = text(&opened.stderr);
        return skipped(&format!("ordinary users need fusermount3 and may open /dev/fuse elsewhere: {}", why.trim()));
    }
    let sandbox = Sandbox::for_user(user);
    sandbox.write("S/file", rnd(21, 20 << 20));
    sandbox.give();
    sandbox.run(["push", "S", "r"]).ok();
    let first = Mounted::new(&sandbox, "r", "M", &[]);
    reads_right(user, &sandbox);
    let script = format!("while cat {} >/dev/null; do :; done", sandbox.path("M/file").display());
    let reader = user_command(user, "sh").arg("-c").arg(script).stderr(Stdio::null()).spawn();
    let mut reader = reader.expect("there is a shell");
    first.kill();
    let mut has_ended = || reader.try_wait().expect("a child can be waited for").is_some();
    wait_until("the reader has an error", Duration::from_secs(5), &mut has_ended);
    assert_eq!(mount_sources(first.dir()).len(), 1, "the dead mount is still there");

    let second = Mounted::new(&sandbox, "r", "M", &[]);
    assert_eq!(mount_sources(second.dir()).len(), 1);
    reads_right(user, &sandbox);
    second.kill();
    let outcome = sandbox.json(["umount", "M"]).ok();
    assert_eq!(outcome.result()["was_dead"].as_bool(), Some(true));
    assert!(mount_sources(second.dir()).is_empty());
    fs::remove_dir(sandbox.path("M")).expect("it is an empty folder again");
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
fn what_another_program_left_is_not_touched() {
    if let Some(why) = Mounted::impossible() {
        return skipped(&why);
    }
    if !is_root() {
        return skipped("only root can make a mount that is served by nobody");
    }
    let sandbox = Sandbox::new();
    sandbox.write("S/file", "content");
    sandbox.run(["push", "S", "r"]).ok();
    let dir = sandbox.mkdir("M");
    // The descriptor is closed when the shell ends, and the mount is dead.
    let script = "exec 9<>/dev/fuse; mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 stranger \"$1\"";
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(&dir).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(fs::metadata(&dir).is_err(), "it is dead");
    for command in [["mount", "r", "M"].as_slice(), &["umount", "M"], &["umount", "--lazy", "M"]] {
        sandbox.json(command).ends(Class::Usage).says("M").says("stranger");
        assert_eq!(mount_sources(&dir), ["stranger"]);
    }
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(Path::new(&dir).is_dir());
}

//! B28: names in a manifest that lead out.

use std::time::Duration;

use forebay_tests::{Class, Forge, Sandbox, dir_entry, inline_file, link_entry, make_fifo};

const BAD: [&[u8]; 14] = [
    b"../out.txt",
    b"/tmp/out.txt",
    b"a/../../out.txt",
    b"a/./b",
    b"a//b",
    b".",
    b"..",
    b"",
    b"..\\out.txt",
    b"C:\\out.txt",
    b"\\\\host\\share\\out.txt",
    b"nul\0byte",
    b"a/",
    b"dir\\..\\..\\out.txt",
];
const QUICK: Duration = Duration::from_secs(5);

/// A sandbox with a sentinel and a pipe beside the destination, where names could lead.
fn surroundings() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("sentinel", "untouched");
    make_fifo(sandbox.path("out.txt"));
    sandbox.mkdir("D");
    sandbox
}

fn check_refused(sandbox: &Sandbox, name: &[u8]) {
    let shown = String::from_utf8_lossy(name);
    for args in [&["fetch", "forged", "D"][..], &["verify", "forged"], &["verify"], &["ls", "-R", "forged"]] {
        let outcome = sandbox.command(args).limit_s(20).run().ends(Class::Corrupt);
        assert!(outcome.elapsed < QUICK, "{args:?} took {:?}", outcome.elapsed);
        let said = outcome.said();
        // Control characters are shown escaped.
        let visible = shown.replace('\0', "\\u{0}");
        assert!(said.contains(&format!("'{visible}'")), "{args:?} names the entry {visible}: {said}");
    }
    let left = std::fs::read_dir(sandbox.path("D")).expect("the destination is there").count();
    assert_eq!(left, 0, "{shown}: the destination stays empty");
    assert!(std::fs::read(sandbox.path("sentinel")).is_ok_and(|found| found == b"untouched"));
    let pipe = std::fs::symlink_metadata(sandbox.path("out.txt")).expect("the pipe is there");
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&pipe.file_type()), "{shown}: the pipe is a pipe");
    assert!(!std::path::Path::new("/tmp/out.txt").exists());
}

#[test]
fn a_bad_name_in_the_root_is_refused_and_named() {
    for name in BAD {
        let sandbox = surroundings();
        let mut forge = Forge::new(1);
        let root = forge.folder(vec![inline_file(name, b"evil")]);
        forge.write(&sandbox.repo_dir(), root);
        check_refused(&sandbox, name);
    }
}

#[test]
fn a_bad_name_deep_below_good_ones_is_refused_before_anything_is_written() {
    for name in [&BAD[0], &BAD[6], &BAD[8]] {
        let sandbox = surroundings();
        let mut forge = Forge::new(2);
        let deep = forge.folder(vec![inline_file(name, b"evil")]);
        let middle = forge.folder(vec![inline_file(b"good", b"good"), dir_entry(b"z-deep", deep)]);
        let root = forge.folder(vec![inline_file(b"first", b"good"), dir_entry(b"second", middle)]);
        forge.write(&sandbox.repo_dir(), root);
        check_refused(&sandbox, name);
    }
}

#[test]
fn names_twice_or_out_of_order_are_refused() {
    let target = b"/tmp";
    for entries in [
        vec![inline_file(b"x", b"1"), inline_file(b"x", b"2")],
        vec![inline_file(b"b", b"1"), inline_file(b"a", b"2")],
        vec![link_entry(b"x", target), inline_file(b"x", b"through the link")],
    ] {
        let sandbox = surroundings();
        let mut forge = Forge::new(3);
        let root = forge.folder(entries);
        forge.write(&sandbox.repo_dir(), root);
        sandbox.run(["fetch", "forged", "D"]).ends(Class::Corrupt);
        sandbox.run(["verify"]).ends(Class::Corrupt);
        assert_eq!(std::fs::read_dir(sandbox.path("D")).unwrap().count(), 0);
    }
}

#[test]
fn a_link_and_a_folder_of_one_name_never_meet() {
    // Were the link made first, the folder's file would be written through it.
    let sandbox = surroundings();
    let mut forge = Forge::new(4);
    let below = forge.folder(vec![inline_file(b"sentinel", b"evil")]);
    let outside = sandbox.path(".").into_os_string().into_encoded_bytes();
    let root = forge.folder(vec![link_entry(b"x", &outside), dir_entry(b"x", below)]);
    forge.write(&sandbox.repo_dir(), root);
    sandbox.run(["fetch", "forged", "D"]).ends(Class::Corrupt);
    assert_eq!(std::fs::read(sandbox.path("sentinel")).unwrap(), b"untouched");
}

#[test]
fn a_good_forgery_is_fetched() {
    // The forge itself writes what the store reads: otherwise every refusal above would prove nothing.
    let sandbox = surroundings();
    let mut forge = Forge::new(5);
    let below = forge.folder(vec![inline_file(b"back\\slash", b"fine")]);
    let root = forge.folder(vec![dir_entry(b"below", below), link_entry(b"link", b"../sentinel")]);
    forge.write(&sandbox.repo_dir(), root);
    sandbox.run(["fetch", "forged", "D"]).ok();
    assert_eq!(std::fs::read(sandbox.path("D/below/back\\slash")).unwrap(), b"fine");
    sandbox.run(["verify"]).ok();
}

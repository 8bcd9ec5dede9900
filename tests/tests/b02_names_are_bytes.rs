//! B02: names are bytes, kept as they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forebay_tests::{Sandbox, assert_tree_equal, tree_of};

const NAMES: [&[u8]; 14] = [
    b"caf\xe9.bin",
    "n\u{e9}.bin".as_bytes(),
    "ne\u{301}.bin".as_bytes(),
    b"-rf",
    b"two\nlines",
    b" lead and trail ",
    b"\"q'$(x)`",
    b"back\\slash",
    "\u{1f4be}.bin".as_bytes(),
    "\u{ff01}wide.bin".as_bytes(),
    b"\x1b[31mred",
    b"...",
    b"a:b@c",
    b"\xff\xfe",
];

#[test]
fn every_name_comes_back_byte_for_byte() {
    let sandbox = Sandbox::new();
    let source = sandbox.mkdir("S");
    for (number, name) in NAMES.iter().enumerate() {
        std::fs::write(source.join(OsStr::from_bytes(name)), number.to_string()).unwrap();
    }
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(&source));

    let wanted: BTreeSet<Vec<u8>> = NAMES.iter().map(|name| name.to_vec()).collect();
    let listed = sandbox.json(["ls", "r"]).ok();
    assert_eq!(listed.listed_paths().into_iter().collect::<BTreeSet<_>>(), wanted);
    let plain = sandbox.run(["ls", "r"]).ok();
    let lines: BTreeSet<&[u8]> = plain.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), NAMES.len(), "one line a name: {lines:?}");
    for escaped in [&b"caf\\xe9.bin"[..], b"two\\nlines", b"back\\\\slash", b"\\xff\\xfe"] {
        assert!(lines.contains(escaped), "{} is missing", String::from_utf8_lossy(escaped));
    }

    for (number, name) in NAMES.iter().enumerate() {
        let mut place = b"r:".to_vec();
        place.extend_from_slice(name);
        assert_eq!(sandbox.cat(OsStr::from_bytes(&place)).ok().stdout, number.to_string().into_bytes());
    }
}

#[test]
fn names_sort_by_bytes_and_do_not_fold() {
    let sandbox = Sandbox::new();
    for name in ["B", "a", "b", "\u{e9}", "e\u{301}"] {
        sandbox.write(format!("S/{name}"), name);
    }
    sandbox.run(["push", "S", "r"]).ok();
    let paths = sandbox.json(["ls", "r"]).ok().listed_paths();
    let wanted: Vec<Vec<u8>> = ["B", "a", "b", "e\u{301}", "\u{e9}"].map(|name| name.as_bytes().to_vec()).to_vec();
    assert_eq!(paths, wanted);
}

#[test]
fn a_name_that_leads_out_elsewhere_is_refused_with_a_way_out() {
    let sandbox = Sandbox::new();
    sandbox.write("S/ok", "1");
    sandbox.write("S/..\\out.txt", "2");
    sandbox.run(["push", "S", "r"]).ends(forebay_tests::Class::Usage).says("out.txt").says("--exclude");
    sandbox.run(["push", "S", "r", "--exclude", "*out.txt"]).ok();
    assert_eq!(sandbox.json(["ls", "r"]).ok().listed_paths(), [b"ok"]);
}

//! B02: names are bytes, kept as they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use forebay_tests::{Class, Sandbox, assert_tree_equal, make_fifo, raw_path, tree_of};

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
    sandbox.run(["push", "S", "r"]).ends(Class::Usage).says("out.txt").says("--exclude");
    sandbox.run(["push", "S", "r", "--exclude", "*out.txt"]).ok();
    assert_eq!(sandbox.json(["ls", "r"]).ok().listed_paths(), [b"ok"]);
}

#[test]
fn every_line_of_json_gives_exact_bytes() {
    let sandbox = Sandbox::new();
    let source = sandbox.mkdir("S/d\u{e9}");
    std::fs::write(source.join(OsStr::from_bytes(b"caf\xe9")), "1").unwrap();
    symlink(OsStr::from_bytes(b"to\xff"), source.join("link")).unwrap();
    make_fifo(source.join(OsStr::from_bytes(b"pipe\xfe")));
    let pushed = sandbox.json(["push", "S", "r"]).ok();
    let skipped = pushed.warnings().iter().filter_map(raw_path).find(|path| path.ends_with(b"/pipe\xfe"));
    assert!(skipped.is_some(), "{:?}", pushed.warnings());

    let listed = sandbox.json(["ls", "-R", "r"]).ok();
    let entries = listed.entries();
    let path_is = |wanted: &[u8]| entries.iter().find(|entry| raw_path(entry).as_deref() == Some(wanted)).unwrap();
    let file = path_is("d\u{e9}/".as_bytes().iter().chain(b"caf\xe9").copied().collect::<Vec<u8>>().as_slice());
    assert_eq!((&file["path"], &file["type"]), (&"d\u{e9}/caf\u{fffd}".into(), &"file".into()));
    let link = path_is("d\u{e9}/link".as_bytes());
    assert!(link.get("path_b64").is_none(), "UTF-8 needs no second spelling: {link}");
    assert_eq!((&link["target"], &link["type"]), (&"to\u{fffd}".into(), &"link".into()));

    std::fs::write(source.join(OsStr::from_bytes(b"caf\xe9")), "22").unwrap();
    sandbox.run(["push", "S", "r"]).ok();
    let diff = sandbox.json(["diff", "r@1", "r@2"]).ok();
    assert!(diff.listed_paths().contains(&b"d\xc3\xa9/caf\xe9".to_vec()), "{diff:?}");
    assert_eq!(sandbox.json(["fetch", "r", "D", "--include", "caf*"]).ok().num("files"), 1);
    assert_eq!(std::fs::read(sandbox.path("D/d\u{e9}").join(OsStr::from_bytes(b"caf\xe9"))).unwrap(), b"22");
}

#[test]
fn exact_targets_of_links_can_be_got_back() {
    let sandbox = Sandbox::new();
    let source = sandbox.mkdir("S");
    symlink(OsStr::from_bytes(b"to\xff"), source.join("raw")).unwrap();
    symlink("n\u{e9}", source.join("text")).unwrap();
    sandbox.run(["push", "S", "r"]).ok();
    let entries = sandbox.json(["ls", "r"]).ok().entries();
    assert_eq!((&entries[0]["target"], &entries[0]["target_b64"]), (&"to\u{fffd}".into(), &"dG//".into()));
    assert_eq!(entries[1]["target"], "n\u{e9}");
    assert!(entries[1].get("target_b64").is_none(), "UTF-8 needs no second spelling");
}

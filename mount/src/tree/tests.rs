//! A tree from a source in memory: names, listings in parts, hard links, and what is read when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use forebay_format::{ChunkId, ChunkRef, ChunkerParams, Content, FileDigest, SubtreeRef, TreeNode};

use super::*;
use crate::fake::Fake;

const OPTIONS: TreeOptions = TreeOptions { data_bytes: 64 << 20, metadata_bytes: 32 << 20, read_ahead_bytes: 8 << 20 };

fn entry(name: &str, kind: EntryKind) -> Entry {
    let mtime = Timestamp { seconds: -7, nanos: 123_456_789 };
    Entry { name: name.as_bytes().to_vec(), mode: 0o640, mtime, kind }
}

fn inline(name: &str, bytes: &[u8], hard_link: Option<u64>) -> Entry {
    let content = Content::Inline(bytes.to_vec());
    let (size, digest) = (bytes.len() as u64, FileDigest::of(bytes));
    entry(name, EntryKind::File(FileEntry { size, digest, content, holes: None, hard_link }))
}

fn symlink(name: &str, target: &str) -> Entry {
    entry(name, EntryKind::Symlink(target.as_bytes().to_vec()))
}

fn store(fake: &mut Fake, node: TreeNode) -> Directory {
    let (id, totals) = (ChunkId::of(&node.encode()), node.totals().unwrap());
    fake.trees.insert(id, node);
    Directory { node: id, totals }
}

fn folder(fake: &mut Fake, name: &str, entries: Vec<Entry>) -> Entry {
    let directory = store(fake, TreeNode::Leaf(entries));
    entry(name, EntryKind::Dir(directory))
}

/// A folder in parts of parts: `width` names a leaf, `width` parts a node.
fn wide(fake: &mut Fake, entries: &[Entry], width: usize) -> Directory {
    let part = |fake: &mut Fake, first: &[u8], node: TreeNode| {
        let Directory { node, totals } = store(fake, node);
        SubtreeRef { first: first.to_vec(), node, totals }
    };
    let leaves = entries.chunks(width).map(|leaf| part(fake, &leaf[0].name, TreeNode::Leaf(leaf.to_vec())));
    let mut parts: Vec<SubtreeRef> = leaves.collect();
    while parts.len() > 1 {
        let higher = parts.chunks(width).map(|parts| part(fake, &parts[0].first, TreeNode::Inner(parts.to_vec())));
        parts = higher.collect();
    }
    Directory { node: parts[0].node, totals: parts[0].totals }
}

fn tree_of(fake: Fake, root: Directory) -> (Arc<Fake>, Tree) {
    let chunker = ChunkerParams { min_bytes: 64 << 10, avg_bytes: 256 << 10, max_bytes: 1 << 20, normalization: 1 };
    let mtime = Timestamp { seconds: 5, nanos: 6 };
    let snapshot = Snapshot { mode: 0o755, mtime, root, chunker, labels: BTreeMap::new() };
    let fake = Arc::new(fake);
    (Arc::clone(&fake), Tree::new(Arc::<Fake>::clone(&fake), snapshot, OPTIONS))
}

/// Everything of a folder, asked for `at_once` lines at a time.
fn listing(tree: &Tree, folder: Ino, refer: bool, at_once: usize) -> Vec<(Vec<u8>, Ino)> {
    let (mut lines, mut cookie) = (Vec::new(), 0);
    loop {
        let mut taken = 0;
        let result = tree.list(folder, cookie, refer, Access::Load, &mut |line| {
            if taken == at_once {
                return false;
            }
            taken += 1;
            cookie = line.cookie;
            lines.push((line.name.to_vec(), line.ino));
            true
        });
        result.unwrap();
        if taken == 0 {
            return lines;
        }
    }
}

fn look_up(tree: &Tree, parent: Ino, name: &str) -> Attributes {
    tree.look_up(parent, name.as_bytes(), Access::Load).unwrap().unwrap()
}

#[test]
fn names_attributes_and_targets() {
    let mut fake = Fake::default();
    let below = folder(&mut fake, "sub", vec![inline("file", b"hello", None)]);
    let root = store(&mut fake, TreeNode::Leaf(vec![symlink("link", "sub/file"), below]));
    let (_, tree) = tree_of(fake, root);
    let root = tree.attributes(Ino::ROOT, Access::Cached).unwrap();
    assert_eq!((root.kind, root.mode, root.mtime.seconds), (NodeKind::Folder, 0o755, 5));
    let link = look_up(&tree, Ino::ROOT, "link");
    assert_eq!((link.kind, link.size), (NodeKind::Symlink, 8));
    assert_eq!(tree.target(link.ino, Access::Load).unwrap(), b"sub/file");
    let sub = look_up(&tree, Ino::ROOT, "sub");
    let file = look_up(&tree, sub.ino, "file");
    assert_eq!((file.kind, file.size, file.mode, file.nlink), (NodeKind::File, 5, 0o640, 1));
    assert_eq!((file.mtime.seconds, file.mtime.nanos), (-7, 123_456_789));
    assert_eq!(tree.attributes(file.ino, Access::Load).unwrap(), file);
    assert_eq!(tree.path(file.ino), b"sub/file");
    let mut got = Vec::new();
    tree.read(file.ino, 1, 100, Access::Load, |bytes| got = bytes.to_vec()).unwrap();
    assert_eq!(got, b"ello");
    tree.read(file.ino, 5, 100, Access::Load, |bytes| got = bytes.to_vec()).unwrap();
    assert_eq!(got, b"");
    assert!(matches!(tree.look_up(Ino::ROOT, b"nothing", Access::Load), Ok(None)));
    assert!(matches!(tree.look_up(file.ino, b"x", Access::Load), Err(TreeError::NotFolder)));
    assert!(matches!(tree.target(file.ino, Access::Load), Err(TreeError::WrongKind)));
    assert!(matches!(tree.read(sub.ino, 0, 1, Access::Load, |_| ()), Err(TreeError::IsFolder)));
    let stale = Ino::from_kernel(99);
    assert!(matches!(tree.attributes(stale, Access::Load), Err(TreeError::Stale { .. })));
    tree.forget(stale, 1);
    tree.forget(file.ino, 1);
    assert!(matches!(tree.attributes(file.ino, Access::Load), Err(TreeError::Stale { .. })));
}

#[test]
fn what_is_not_here_is_said_at_once_and_reads_nothing() {
    let mut fake = Fake::default();
    let root = store(&mut fake, TreeNode::Leaf(vec![inline("file", b"hello", None)]));
    let (fake, tree) = tree_of(fake, root);
    assert!(matches!(tree.look_up(Ino::ROOT, b"file", Access::Cached), Err(TreeError::NotCached)));
    let listed = tree.list(Ino::ROOT, DOT_DOT, true, Access::Cached, &mut |_| true);
    assert!(matches!(listed, Err(TreeError::NotCached)));
    assert_eq!(fake.requests.load(Ordering::Relaxed), 0);
    look_up(&tree, Ino::ROOT, "file");
    assert!(tree.look_up(Ino::ROOT, b"file", Access::Cached).unwrap().is_some());
    assert_eq!(fake.requests.load(Ordering::Relaxed), 1, "one node, read once");
}

#[test]
fn a_wide_folder_is_read_in_the_parts_that_are_looked_at() {
    let mut fake = Fake::default();
    let names: Vec<String> = (0..1000).map(|number| format!("{number:04}")).collect();
    let entries: Vec<Entry> = names.iter().map(|name| inline(name, name.as_bytes(), None)).collect();
    let root = wide(&mut fake, &entries, 10);
    let (fake, tree) = tree_of(fake, root);
    for name in ["0000", "0999", "0500", "0509", "0510"] {
        assert_eq!(look_up(&tree, Ino::ROOT, name).size, 4);
    }
    for name in [&b"0500x"[..], b"", b"0", b"zzz", b"0999z"] {
        assert!(matches!(tree.look_up(Ino::ROOT, name, Access::Load), Ok(None)));
    }
    // Eleven inner nodes and four leaves, the first of which came on the way.
    assert_eq!(fake.requests.load(Ordering::Relaxed), 11 + 4);
    for at_once in [1, 7, 10, 5000] {
        let lines = listing(&tree, Ino::ROOT, at_once % 2 == 0, at_once);
        let wanted = [".", ".."].into_iter().chain(names.iter().map(String::as_str));
        assert!(lines.iter().map(|(name, _)| name.as_slice()).eq(wanted.map(str::as_bytes)), "{at_once} at once");
        let numbers: BTreeSet<_> = lines[2..].iter().map(|(_, ino)| *ino).collect();
        assert_eq!(numbers.len(), 1000);
        assert_eq!(lines[2 + 500].1, look_up(&tree, Ino::ROOT, "0500").ino);
    }
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let (a, b, c) = (inline("a", b"1", None), inline("b", b"2", None), inline("c", b"3", None));
    let forge = |change: fn(&mut Vec<SubtreeRef>), names: [&[Entry]; 2]| {
        let mut fake = Fake::default();
        let mut parts: Vec<SubtreeRef> = names
            .iter()
            .map(|names| {
                let Directory { node, totals } = store(&mut fake, TreeNode::Leaf(names.to_vec()));
                SubtreeRef { first: names[0].name.clone(), node, totals }
            })
            .collect();
        change(&mut parts);
        let root = store(&mut fake, TreeNode::Inner(parts));
        let (_, tree) = tree_of(fake, root);
        let mut names = 0;
        tree.list(Ino::ROOT, 0, false, Access::Load, &mut |_| {
            names += 1;
            true
        })
    };
    let ab = [a.clone(), b.clone()];
    let ac = [a, c.clone()];
    assert!(forge(|_| (), [&ab, std::slice::from_ref(&c)]).is_ok());
    // A first name that is not the first; names that reach into the next part; parts out of order.
    assert!(forge(|parts| parts[1].first = b"bb".to_vec(), [&ab, std::slice::from_ref(&c)]).is_err());
    assert!(forge(|_| (), [&ac, std::slice::from_ref(&b)]).is_err());
    assert!(forge(|parts| parts.reverse(), [&ab, std::slice::from_ref(&c)]).is_err());
}

#[test]
fn hard_links_are_one_file_and_what_differs_is_not() {
    let mut fake = Fake::default();
    let deep = folder(&mut fake, "deep", vec![inline("first", b"same", Some(7)), inline("other", b"else", Some(7))]);
    let a = folder(&mut fake, "a", vec![deep]);
    let z = folder(&mut fake, "z", vec![inline("alone", b"alone", Some(9)), inline("last", b"same", Some(7))]);
    let root = store(&mut fake, TreeNode::Leaf(vec![a, inline("m", b"same", Some(7)), z]));
    let (_, tree) = tree_of(fake, root);
    // The folder of the first name has never been looked at.
    let m = look_up(&tree, Ino::ROOT, "m");
    assert_eq!(m.nlink, 3);
    let z = look_up(&tree, Ino::ROOT, "z");
    assert_eq!(look_up(&tree, z.ino, "last").ino, m.ino);
    let listed = listing(&tree, z.ino, false, 10);
    assert_eq!(listed.iter().find(|(name, _)| name == b"last").unwrap().1, m.ino);
    let a = look_up(&tree, Ino::ROOT, "a");
    let deep = look_up(&tree, a.ino, "deep");
    let (first, other) = (look_up(&tree, deep.ino, "first"), look_up(&tree, deep.ino, "other"));
    assert_eq!((first.ino, first.nlink), (m.ino, 3));
    assert_eq!((other.ino == m.ino, other.nlink), (false, 1));
    assert_eq!(look_up(&tree, z.ino, "alone").nlink, 1);
    assert_eq!(tree.path(m.ino), b"a/deep/first");
    assert_eq!(tree.attributes(m.ino, Access::Load).unwrap(), m);
    // All references go, and the folders on the way with them.
    tree.forget(m.ino, 3);
    for ino in [other.ino, deep.ino, a.ino] {
        tree.forget(ino, 1);
    }
    assert!(matches!(tree.attributes(a.ino, Access::Load), Err(TreeError::Stale { .. })));
}

#[test]
fn a_line_that_has_no_room_costs_no_reference() {
    let mut fake = Fake::default();
    let root = store(&mut fake, TreeNode::Leaf(vec![inline("a", b"1", None), inline("b", b"2", None)]));
    let (_, tree) = tree_of(fake, root);
    let mut refused = None;
    tree.list(Ino::ROOT, DOT_DOT, true, Access::Load, &mut |line| {
        refused = Some(line.ino);
        line.name == b"a"
    })
    .unwrap();
    assert!(matches!(tree.attributes(refused.unwrap(), Access::Load), Err(TreeError::Stale { .. })));
}

#[test]
fn reading_in_order_asks_for_what_comes_next() {
    let mut fake = Fake::default();
    let chunks: Vec<Vec<u8>> = (0..64_u8).map(|number| vec![number; 64 << 10]).collect();
    let refs = chunks.iter().map(|bytes| ChunkRef { id: ChunkId::of(bytes), len: 64 << 10 }).collect();
    fake.chunks = chunks.iter().map(|bytes| (ChunkId::of(bytes), bytes.clone())).collect();
    let (size, digest) = (64 << 16, FileDigest::of(b""));
    let file = FileEntry { size, digest, content: Content::Chunks(refs), holes: None, hard_link: None };
    let root = store(&mut fake, TreeNode::Leaf(vec![entry("file", EntryKind::File(file))]));
    let (fake, tree) = tree_of(fake, root);
    let file = look_up(&tree, Ino::ROOT, "file").ino;
    assert!(tree.read(file, 0, 1 << 16, Access::Load, |_| ()).unwrap().is_none());
    let ahead = tree.read(file, 1 << 16, 1 << 16, Access::Load, |_| ()).unwrap().unwrap();
    let before = fake.pieces.load(Ordering::Relaxed);
    tree.read_ahead(&ahead);
    assert_eq!(fake.pieces.load(Ordering::Relaxed), before + 16);
    let mut got = Vec::new();
    tree.read(file, 2 << 16, 3 << 16, Access::Cached, |bytes| got = bytes.to_vec()).unwrap();
    assert_eq!(got, [vec![2; 1 << 16], vec![3; 1 << 16], vec![4; 1 << 16]].concat());
}

#[test]
fn walking_through_small_files_reads_their_neighbours_ahead() {
    let mut fake = Fake::default();
    let mut entries = Vec::new();
    for number in 0..50_u8 {
        let bytes = vec![number; 5000];
        let refs = vec![ChunkRef { id: ChunkId::of(&bytes), len: 5000 }];
        let digest = FileDigest::of(&bytes);
        let file = FileEntry { size: 5000, digest, content: Content::Chunks(refs), holes: None, hard_link: None };
        fake.chunks.insert(ChunkId::of(&bytes), bytes);
        entries.push(entry(&format!("{number:02}"), EntryKind::File(file)));
    }
    let root = store(&mut fake, TreeNode::Leaf(entries));
    let (fake, tree) = tree_of(fake, root);
    for number in 0..50_u8 {
        let file = look_up(&tree, Ino::ROOT, &format!("{number:02}"));
        let mut got = Vec::new();
        let ahead = tree.read(file.ino, 0, 1 << 17, Access::Load, |bytes| got = bytes.to_vec()).unwrap();
        assert_eq!(got, vec![number; 5000]);
        if let Some(ahead) = ahead {
            tree.read_ahead(&ahead);
        }
    }
    assert_eq!(fake.pieces.load(Ordering::Relaxed), 50);
    // The root's node, the first two files, and the rest together.
    assert_eq!(fake.requests.load(Ordering::Relaxed), 1 + 2 + 1);
}

#[test]
fn cookies_are_never_those_of_the_dots() {
    assert_eq!(place_of(0), Place::default());
    assert_eq!(place_of(DOT_DOT), Place::default());
    let place = Place { part: 3, entry: 70_000 };
    assert_eq!(place_of(cookie_of(place)), place);
    assert!(cookie_of(Place::default()) > DOT_DOT);
}

//! B29: a chunk that swells, and manifests that lie about lengths.

use std::io::{self, Read};
use std::time::Duration;

use forebay_format::{ChunkId, ChunkRef, Content, FileDigest, FileEntry, FrameKind, Hole, ListNode, ListRef, Totals};
use forebay_tests::{Class, Forge, Sandbox, dir_entry, file_entry, inline_file, with_totals};

const QUICK: Duration = Duration::from_secs(5);
/// Peak memory of a client that meets a bomb.
const PEAK_RSS_BYTES: u64 = 256 << 20;
const MIB: u32 = 1 << 20;

/// One zstd frame of `len` zeros, about 30,000 times smaller.
fn bomb(len: u64) -> Vec<u8> {
    let mut zeros = io::repeat(0).take(len);
    zstd::encode_all(&mut zeros, 3).expect("zeros compress")
}

/// A frame header with a content size of 2^60 and no content that could follow.
fn announces_2_to_the_60() -> Vec<u8> {
    // Magic, descriptor (8-byte content size, single segment), content size, one empty last block. RFC 8878 §3.1.1.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000];
    frame.extend_from_slice(&(1_u64 << 60).to_le_bytes());
    frame.extend_from_slice(&[1, 0, 0]);
    frame
}

fn one_chunk_file(id: ChunkId, len: u32) -> FileEntry {
    let content = Content::Chunks(vec![ChunkRef { id, len }]);
    FileEntry { size: len.into(), digest: FileDigest::of(b"?"), content, holes: None, hard_link: None }
}

/// Every command that reads the file refuses it quickly and in little memory.
fn refused(sandbox: &Sandbox, names: Option<ChunkId>) {
    for args in [&["fetch", "forged", "D"][..], &["cat", "forged:file"], &["verify", "forged"]] {
        let outcome = sandbox.command(args).binary_stdout().limit_s(20).run().ends(Class::Corrupt);
        assert!(outcome.elapsed < QUICK, "{args:?} took {:?}", outcome.elapsed);
        assert!(outcome.peak_rss_bytes < PEAK_RSS_BYTES, "{args:?} took {} bytes", outcome.peak_rss_bytes);
        if let Some(id) = names {
            assert!(outcome.said().contains(&id.to_hex()), "{args:?} names the chunk: {}", outcome.said());
        }
    }
    assert!(!sandbox.path("D/file").exists());
}

#[test]
fn payloads_that_swell_are_refused() {
    let good = zstd::bulk::compress(&vec![7; 4 << 20], 1).unwrap();
    let double = [good.clone(), good.clone()].concat();
    let trailing = [good.clone(), b"more".to_vec()].concat();
    let cut = good[..good.len() - 3].to_vec();
    let small = zstd::bulk::compress(&[7; 1000], 1).unwrap();
    for (number, payload) in
        (10..).zip([bomb(4 << 30), announces_2_to_the_60(), double, trailing, cut, small, b"no zstd".to_vec(), vec![]])
    {
        let sandbox = Sandbox::new();
        let mut forge = Forge::new(number);
        let id = ChunkId::of(&[number; 3]);
        forge.zstd(id, 4 * MIB, payload);
        let root = forge.folder(vec![file_entry(b"file", one_chunk_file(id, 4 * MIB))]);
        forge.write(&sandbox.repo_dir(), root);
        refused(&sandbox, Some(id));
        sandbox.run(["verify"]).ends(Class::Corrupt).says(&id.to_hex());
    }
}

#[test]
fn right_chunks_under_wrong_lengths_are_refused() {
    for (number, claimed) in (30..).zip([1, 99_999, 100_001, 4 * MIB]) {
        let sandbox = Sandbox::new();
        let mut forge = Forge::new(number);
        let id = forge.raw(FrameKind::Data, &vec![9; 100_000]);
        let root = forge.folder(vec![file_entry(b"file", one_chunk_file(id, claimed))]);
        forge.write(&sandbox.repo_dir(), root);
        refused(&sandbox, Some(id));
    }
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    let file = |forge: &mut Forge, size: u64, holes: Option<Vec<Hole>>| {
        let id = forge.raw(FrameKind::Data, &vec![9; 65_536]);
        FileEntry { size, holes, ..one_chunk_file(id, 65_536) }
    };
    let hole = |offset, len| Hole { offset, len };
    for (number, (size, holes)) in (50..).zip([
        (65_537, None),
        (u64::MAX, None),
        (131_072, Some(vec![hole(65_536, 65_537)])),
        (131_072, Some(vec![hole(1, 65_536)])),
        (196_608, Some(vec![hole(65_536, 65_536), hole(65_536, 65_536)])),
        (196_608, Some(vec![hole(0, 65_536), hole(65_536, 65_536)])),
        (u64::MAX, Some(vec![hole(65_536, u64::MAX - 131_071)])),
        (65_536, Some(vec![])),
    ]) {
        let sandbox = Sandbox::new();
        let mut forge = Forge::new(number);
        let entry = file(&mut forge, size, holes);
        let root = forge.folder(vec![file_entry(b"file", entry)]);
        forge.write(&sandbox.repo_dir(), root);
        refused(&sandbox, None);
    }
}

#[test]
fn a_chunk_across_a_hole_is_refused() {
    let sandbox = Sandbox::new();
    let mut forge = Forge::new(70);
    let id = forge.raw(FrameKind::Data, &vec![9; 131_072]);
    let holes = Some(vec![Hole { offset: 65_536, len: 65_536 }]);
    let root =
        forge.folder(vec![file_entry(b"file", FileEntry { size: 196_608, holes, ..one_chunk_file(id, 131_072) })]);
    forge.write(&sandbox.repo_dir(), root);
    refused(&sandbox, Some(id));
}

#[test]
fn lists_and_totals_that_lie_are_refused() {
    let list_file = |height, id, bytes| FileEntry {
        size: bytes,
        content: Content::Lists(height, vec![ListRef { id, bytes }]),
        ..one_chunk_file(id, 1)
    };
    for (number, (height, claimed)) in (80..).zip([(1, 65_537), (2, 65_536), (4, 65_536), (5, 65_536), (0, 65_536)]) {
        let sandbox = Sandbox::new();
        let mut forge = Forge::new(number);
        let data = forge.raw(FrameKind::Data, &vec![9; 65_536]);
        let node = ListNode::Chunks(vec![ChunkRef { id: data, len: 65_536 }]).encode();
        let list = forge.raw(FrameKind::List, &node);
        let root = forge.folder(vec![file_entry(b"file", list_file(height, list, claimed))]);
        forge.write(&sandbox.repo_dir(), root);
        refused(&sandbox, None);
    }
    let sandbox = Sandbox::new();
    let mut forge = Forge::new(90);
    let root = forge.folder(vec![inline_file(b"file", b"x")]);
    let root = with_totals(root, Totals { files: 2, ..root.totals });
    forge.write(&sandbox.repo_dir(), root);
    refused(&sandbox, None);
}

#[test]
fn data_is_never_read_as_a_manifest() {
    let sandbox = Sandbox::new();
    let mut forge = Forge::new(91);
    let mut root = forge.folder(vec![inline_file(b"file", b"x")]);
    let node = forebay_format::TreeNode::Leaf(vec![inline_file(b"other", b"x")]).encode();
    root.node = forge.raw(FrameKind::Data, &node);
    forge.write(&sandbox.repo_dir(), root);
    refused(&sandbox, Some(root.node));
}

#[test]
fn two_thousand_folders_inside_each_other_are_refused() {
    let sandbox = Sandbox::new();
    let mut forge = Forge::new(92);
    let mut folder = forge.folder(vec![inline_file(b"deepest", b"x")]);
    for _ in 0..2_000 {
        folder = forge.folder(vec![dir_entry(b"d", folder)]);
    }
    forge.write(&sandbox.repo_dir(), folder);
    sandbox.command(["fetch", "forged", "D"]).limit_s(20).run().ends(Class::Corrupt);
    sandbox.command(["ls", "-R", "forged"]).limit_s(20).run().ends(Class::Corrupt);
}

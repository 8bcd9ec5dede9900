//! Every object once with everything in it: golden bytes, flipped bits, cuts, and a short fuzz.
#![allow(clippy::disallowed_methods, reason = "the generator of the vectors is asked for by a variable")]

#[expect(unreachable_pub, reason = "shared with the fuzz targets, where it is public")]
#[path = "../../../fuzz/src/bodies.rs"]
mod bodies;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bodies::{LIST_BYTES, PACK, REPOSITORY, SEQUENCE, TARGETS};
use forebay_format::{
    ChunkId, ChunkRef, ChunkerParams, Cipher, Codec, Content, Digest, Directory, Entry, EntryKind, FRAME_HEADER_LEN,
    FileDigest, FileEntry, FrameHeader, FrameKind, Hole, IdScheme, ListNode, LogRecord, LogState, Nonce, PackFooter,
    PackTrailer, RefChange, RefState, RefVersion, RepositoryConfig, Row, Segment, SegmentId, SegmentPack, SegmentRef,
    Snapshot, SnapshotId, StoredId, SubtreeRef, TRAILER_LEN, Timestamp, Totals, TreeNode,
};

const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanos: 123_456_789 };
const BEFORE_1970: Timestamp = Timestamp { seconds: -1, nanos: 500_000_000 };
const CHUNKER: ChunkerParams =
    ChunkerParams { min_bytes: 64 << 10, avg_bytes: 256 << 10, max_bytes: 1 << 20, normalization: 1 };

fn header(word: &[u8], codec: Codec, plain_len: u32, stored_len: u32) -> FrameHeader {
    let id = ChunkId::of(word);
    let stored_id = match codec {
        Codec::Raw => StoredId::from_bytes(*id.as_bytes()),
        Codec::Zstd => StoredId::of(word),
    };
    FrameHeader { kind: FrameKind::Data, codec, depth: 0, id, base: None, stored_id, plain_len, stored_len }
}

fn rows() -> Vec<Row> {
    vec![
        Row { offset: 0, header: header(b"one", Codec::Zstd, 50, 3) },
        Row { offset: 131, header: header(b"two", Codec::Raw, 7, 7) },
    ]
}

/// Header bytes: 131 + 128 + 7 = 266 bytes of frames do not fit into the fuzz body's first byte, so one row is left out.
fn footer() -> (u8, Vec<u8>) {
    let rows = vec![Row { offset: 0, header: header(b"one", Codec::Zstd, 50, 3) }];
    (131, PackFooter { pack: PACK, rows }.encode())
}

fn segment() -> Vec<u8> {
    let packs = vec![SegmentPack { id: PACK, len: 1_000 }];
    Segment { generation: 5, packs, rows: rows().into_iter().map(|row| (row, 0)).collect() }.encode()
}

fn config() -> RepositoryConfig {
    RepositoryConfig {
        format: 0,
        id: REPOSITORY,
        chunker: CHUNKER,
        id_scheme: IdScheme::Blake3,
        cipher: Cipher::None,
        min_writer: 0,
        created: TIME,
    }
}

fn file(name: &[u8], size: u64, content: Content, holes: Option<Vec<Hole>>) -> Entry {
    let digest = FileDigest::of(name);
    let kind = EntryKind::File(FileEntry { size, digest, content, holes, hard_link: (size == 5).then_some(u64::MAX) });
    Entry { name: name.to_vec(), mode: 0o640, mtime: BEFORE_1970, kind }
}

fn tree() -> TreeNode {
    let chunk = ChunkRef { id: ChunkId::of(b"chunk"), len: 300 };
    let list = forebay_format::ListRef { id: ChunkId::of(b"list"), bytes: 1 << 33 };
    let below = Totals { files: 3, dirs: 2, links: 1, bytes: 999 };
    TreeNode::Leaf(vec![
        file(b"a\xff\n", 5, Content::Inline(b"water".to_vec()), None),
        file(b"b", 65_836, Content::Chunks(vec![chunk]), Some(vec![Hole { offset: 0, len: 65_536 }])),
        file(b"c", 1 << 33, Content::Lists(1, vec![list]), None),
        Entry {
            name: b"d".to_vec(),
            mode: 0o7777,
            mtime: TIME,
            kind: EntryKind::Dir(Directory { node: ChunkId::of(b"node"), totals: below }),
        },
        Entry { name: b"e".to_vec(), mode: 0o777, mtime: TIME, kind: EntryKind::Symlink(b"../x".to_vec()) },
    ])
}

fn inner() -> TreeNode {
    let part = |first: &[u8]| SubtreeRef {
        first: first.to_vec(),
        node: ChunkId::of(first),
        totals: Totals { files: 1, dirs: 0, links: 0, bytes: 10 },
    };
    TreeNode::Inner(vec![part(b"a"), part(b"b")])
}

fn list() -> ListNode {
    ListNode::Chunks(vec![
        ChunkRef { id: ChunkId::of(b"x"), len: 100 },
        ChunkRef { id: ChunkId::of(b"y"), len: u32::try_from(LIST_BYTES).unwrap_or(0) - 100 },
    ])
}

fn snapshot() -> Snapshot {
    Snapshot {
        mode: 0o755,
        mtime: TIME,
        root: Directory { node: ChunkId::of(b"root"), totals: Totals { files: 1, dirs: 0, links: 0, bytes: 5 } },
        chunker: CHUNKER,
        labels: BTreeMap::from([("class".to_owned(), "raw".to_owned()), ("region".to_owned(), "eu".to_owned())]),
    }
}

fn record() -> LogRecord {
    let change = |name: &str, new| RefChange {
        name: name.parse().expect("a ref name"),
        sequence: 1,
        old: None,
        new: Some(SnapshotId::of(new)),
        parent: None,
        envelope: Some(ChunkId::of(b"envelope")),
    };
    let name =
        SegmentRef { id: SegmentId::from_bytes([3; 16]), generation: 5, digest: Digest::of(b"segment"), len: 99 };
    LogRecord {
        repository: REPOSITORY,
        sequence: SEQUENCE,
        previous: None,
        nonce: Nonce::from_bytes([4; 16]),
        writer: "someone@somewhere".to_owned(),
        tool: "forebay 0".to_owned(),
        time: TIME,
        index_generation: 5,
        refs: vec![change("data/one", b"1"), change("data/two", b"2")],
        segments: vec![name],
    }
}

fn state() -> LogState {
    let mut state = LogState::empty(REPOSITORY);
    let record = record();
    state.apply(&record, Digest::of(&record.encode())).expect("the first record follows the empty state");
    state
}

/// Name, fuzz target and bytes of each sample.
fn samples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (frames_len, end) = footer();
    vec![
        ("config", "config", config().encode()),
        ("footer", "footer", [vec![frames_len], end].concat()),
        ("frame", "frame", header(b"one", Codec::Zstd, 50, 3).encode().to_vec()),
        ("list", "list", list().encode()),
        ("record", "record", record().encode()),
        ("segment", "segment", segment()),
        ("snapshot", "snapshot", snapshot().encode()),
        ("state", "state", state().encode()),
        ("tree", "tree", tree().encode()),
        ("tree-inner", "tree", inner().encode()),
    ]
}

fn decodes(name: &str, bytes: &[u8]) -> bool {
    match name {
        "config" => RepositoryConfig::decode(bytes).is_ok(),
        "footer" => {
            let (frames_len, end) = bytes.split_first().expect("not empty");
            let Some(at) = end.len().checked_sub(TRAILER_LEN) else { return false };
            PackTrailer::decode(&end[at..])
                .and_then(|trailer| PackFooter::decode(PACK, &trailer, (*frames_len).into(), &end[..at]))
                .is_ok()
        }
        "frame" => FrameHeader::decode(bytes).is_ok_and(|_| bytes.len() == FRAME_HEADER_LEN),
        "list" => ListNode::decode(bytes, LIST_BYTES).is_ok(),
        "record" => LogRecord::decode(REPOSITORY, SEQUENCE, bytes).is_ok(),
        "segment" => Segment::decode(bytes).is_ok(),
        "snapshot" => Snapshot::decode(bytes).is_ok(),
        "state" => LogState::decode(REPOSITORY, SEQUENCE, bytes).is_ok(),
        "tree" => TreeNode::decode(bytes, tree().totals().expect("small sums")).is_ok(),
        _ => TreeNode::decode(bytes, inner().totals().expect("small sums")).is_ok(),
    }
}

#[test]
fn golden_bytes_stay_as_they_are() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    for (name, _, bytes) in samples() {
        let path = folder.join(format!("{name}.hex"));
        let hex: String = bytes
            .chunks(32)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
            .collect();
        // FOREBAY_MAKE_VECTORS=1 writes them; a change of format shows in the diff.
        if std::env::var_os("FOREBAY_MAKE_VECTORS").is_some() {
            std::fs::write(&path, &hex).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert_eq!(hex, golden, "the format of {name} has changed");
        assert!(decodes(name, &bytes), "{name}");
    }
}

#[test]
fn flipped_bits_are_found_wherever_the_object_protects_itself() {
    // Nodes, lists and snapshots are chunks: their id protects them, not their own bytes.
    for (name, _, bytes) in samples() {
        if matches!(name, "list" | "snapshot" | "tree" | "tree-inner") {
            continue;
        }
        let first = usize::from(name == "footer");
        for bit in first * 8..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!decodes(name, &bad), "{name} bit {bit}");
        }
    }
}

#[test]
fn cut_or_grown_objects_are_refused() {
    for (name, _, bytes) in samples() {
        for len in 1..bytes.len() {
            assert!(!decodes(name, &bytes[..len]), "{name} cut to {len}");
        }
        let grown = [&bytes[..], &[0]].concat();
        assert!(!decodes(name, &grown), "{name} with a byte more");
    }
}

#[test]
fn a_short_fuzz_of_every_decoder() {
    let samples = samples();
    // xorshift64*: the same inputs in every run.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: usize| {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        usize::try_from(random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap_or(0) % bound
    };
    for round in 0..40_000 {
        let (_, target, bytes) = &samples[round % samples.len()];
        let mut data = bytes.clone();
        for _ in 0..=next(4) {
            match next(5) {
                0 => data.truncate(next(data.len() + 1)),
                1 => {
                    let at = next(data.len() + 1);
                    data.insert(at, [0, 1, 0x7f, 0x80, 0xff, 0x9f, 0xbf, 0x5f][next(8)]);
                }
                2 if data.len() > 8 => {
                    let at = next(data.len() - 8);
                    data[at..at + 8].copy_from_slice(&[0xff; 8]);
                }
                3 if !data.is_empty() => {
                    let (from, to) = (next(data.len()), next(data.len()));
                    data.swap(from, to);
                }
                _ if !data.is_empty() => {
                    let at = next(data.len());
                    data[at] = data[at].wrapping_add(1 << next(8));
                }
                _ => {}
            }
        }
        // Sealed objects get their checksum again, so that what lies behind it is reached.
        if matches!(*target, "config" | "record" | "state" | "segment") && data.len() > 40 && round % 2 == 0 {
            let at = data.len() - 32;
            let digest = Digest::of(&data[..at]);
            data[at..].copy_from_slice(digest.as_bytes());
        }
        for (name, body) in TARGETS {
            if name == *target || name == "name" {
                body(&data);
            }
        }
    }
}

#[test]
fn a_record_must_follow_the_state() {
    let state = state();
    let digest = state.last;
    let next = |sequence, previous, ref_sequence, old: Option<&[u8]>| LogRecord {
        sequence,
        previous,
        refs: vec![RefChange {
            name: "data/one".parse().unwrap(),
            sequence: ref_sequence,
            old: old.map(SnapshotId::of),
            new: None,
            parent: None,
            envelope: None,
        }],
        ..record()
    };
    let good = next(2, digest, 2, Some(b"1"));
    let mut removed = state.clone();
    removed.apply(&good, Digest::of(b"2")).unwrap();
    let name = "data/one".parse().unwrap();
    assert!(removed.newest(&name).is_none());
    let kept: &RefState = removed.find(&name).unwrap();
    assert_eq!((kept.sequence, kept.versions.as_slice()), (2, &[] as &[RefVersion]));
    for bad in [
        next(3, digest, 2, Some(b"1")),
        next(1, digest, 2, Some(b"1")),
        next(2, None, 2, Some(b"1")),
        next(2, Some(Digest::of(b"other")), 2, Some(b"1")),
        next(2, digest, 1, Some(b"1")),
        next(2, digest, 3, Some(b"1")),
        next(2, digest, 2, Some(b"other")),
        next(2, digest, 2, None),
    ] {
        let mut unchanged = state.clone();
        assert!(unchanged.apply(&bad, Digest::of(b"2")).is_err(), "{bad:?}");
        assert_eq!(unchanged, state, "a refused record changes nothing");
    }
}

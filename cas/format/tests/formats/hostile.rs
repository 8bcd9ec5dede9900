//! Objects with right checksums that no honest program writes.

use forebay_format::{
    Boundary, BudgetAmount, BudgetChange, BudgetRecord, BudgetState, ChunkId, ChunkRef, ChunkerParams, Codec, Content,
    DecodeError, Digest, Directory, Entry, EntryKind, Envelope, Forgotten, FrameHeader, FrameKind, GcChange,
    HOLE_BLOCK, Hole, INLINE_MAX, LedgerRecord, Limits, ListNode, ListRef, LogRecord, LogState, PackFooter, PackId,
    PackTrailer, RepositoryConfig, RepositoryId, Row, Segment, SegmentPack, Snapshot, StoredId, SubtreeRef,
    TRAILER_LEN, Timestamp, Totals, TreeNode,
};

use crate::bodies::{MONTH, NODE, PACK, REPOSITORY};
use crate::samples::{
    CHUNKER, FRAMES_LEN, boundary, budget, budget_settle, budget_state, config, decode_footer, file, footer, header,
    inner, ledger, ledger_row, money, patch, record, removal, rows, seal, segment, snapshot, state, swept, tree,
};

const OTHER: RepositoryId = RepositoryId::from_bytes([2; 16]);
const BAD_TIME: Timestamp = Timestamp { seconds: 0, nanos: 1_000_000_000 };

#[test]
fn times_of_a_second_and_more_of_nanoseconds_are_refused() {
    assert!(RepositoryConfig::decode(&RepositoryConfig { created: BAD_TIME, ..config() }.encode()).is_err());
    assert!(LogRecord::decode(REPOSITORY, 1, &LogRecord { time: BAD_TIME, ..record() }.encode()).is_err());
    assert!(Snapshot::decode(&Snapshot { mtime: BAD_TIME, ..snapshot() }.encode()).is_err());
    let mut state = state(1);
    state.refs[0].versions[0].time = BAD_TIME;
    assert!(LogState::decode(REPOSITORY, 1, &state.encode()).is_err());
    let mut entry = file(b"a", 0, Content::Inline(Vec::new()), None);
    entry.mtime = BAD_TIME;
    assert!(!is_tree(vec![entry]));
}

#[test]
fn chunk_sizes_that_no_chunker_takes_are_refused() {
    let good = [
        CHUNKER,
        ChunkerParams { min_bytes: 64, avg_bytes: 256, max_bytes: 1024, normalization: 3 },
        ChunkerParams { min_bytes: 1 << 20, avg_bytes: 4 << 20, max_bytes: 16 << 20, normalization: 3 },
    ];
    for params in good {
        assert!(RepositoryConfig::decode(&RepositoryConfig { chunker: params, ..config() }.encode()).is_ok());
    }
    for params in [
        ChunkerParams { min_bytes: 0, ..CHUNKER },
        ChunkerParams { min_bytes: 62, ..CHUNKER },
        ChunkerParams { min_bytes: 65, ..CHUNKER },
        ChunkerParams { min_bytes: CHUNKER.avg_bytes, ..CHUNKER },
        ChunkerParams { avg_bytes: CHUNKER.max_bytes, ..CHUNKER },
        ChunkerParams { avg_bytes: 257 << 10, ..CHUNKER },
        ChunkerParams { min_bytes: 64, avg_bytes: 128, max_bytes: 1024, normalization: 3 },
        ChunkerParams { min_bytes: 64, avg_bytes: 8 << 20, max_bytes: 16 << 20, normalization: 3 },
        ChunkerParams { min_bytes: 2 << 20, avg_bytes: 4 << 20, ..CHUNKER },
        ChunkerParams { max_bytes: (16 << 20) + 2, ..CHUNKER },
        ChunkerParams { max_bytes: u32::MAX, ..CHUNKER },
        ChunkerParams { max_bytes: CHUNKER.max_bytes + 1, ..CHUNKER },
        ChunkerParams { normalization: 4, ..CHUNKER },
    ] {
        let config = RepositoryConfig { chunker: params, ..config() };
        assert!(RepositoryConfig::decode(&config.encode()).is_err(), "{params:?}");
        let snapshot = Snapshot { chunker: params, ..snapshot() };
        assert!(Snapshot::decode(&snapshot.encode()).is_err(), "{params:?}");
    }
}

#[test]
fn newer_versions_are_told_from_damage() {
    for newer in [
        RepositoryConfig { format: 1, ..config() }.encode(),
        RepositoryConfig { min_writer: 1, ..config() }.encode(),
        seal(b"FBYCONF1", b"whatever that will be"),
    ] {
        let error = RepositoryConfig::decode(&newer).unwrap_err();
        assert!(matches!(error, DecodeError::Version { found: 1, supported: 0, .. }), "{error:?}");
    }
    let other = RepositoryConfig::decode(&seal(b"FBYLOGR0", &config().encode()[8..])).unwrap_err();
    assert!(matches!(other, DecodeError::Magic { .. }), "{other:?}");
    let mut header = header(b"one", Codec::Zstd, 50, 3).encode();
    header[8] = 1;
    let crc = crc32c::crc32c(&header[..124]).to_le_bytes();
    header[124..].copy_from_slice(&crc);
    let error = FrameHeader::decode(&header).unwrap_err();
    assert!(matches!(error, DecodeError::Version { found: 1, supported: 0, .. }), "{error:?}");
}

#[test]
fn frames_that_contradict_themselves_are_refused() {
    let base = Some(ChunkId::of(b"base"));
    let zstd = header(b"one", Codec::Zstd, 50, 3);
    let raw = header(b"one", Codec::Raw, 50, 50);
    let good = Limits::DEFAULT.chunk_bytes;
    for bad in [
        FrameHeader { plain_len: good + 1, ..zstd },
        FrameHeader { stored_len: good + 1, ..zstd },
        FrameHeader { depth: 1, ..zstd },
        FrameHeader { base, ..zstd },
        FrameHeader { depth: 1, base, ..zstd },
        FrameHeader { depth: 9, base, ..zstd },
        FrameHeader { depth: 9, ..patch() },
        FrameHeader { depth: 0, ..patch() },
        FrameHeader { depth: 0, base: None, ..patch() },
        FrameHeader { base: Some(patch().id), ..patch() },
        FrameHeader { kind: FrameKind::List, ..patch() },
        FrameHeader { stored_len: 60, ..patch() },
        FrameHeader { stored_len: 49, ..raw },
        FrameHeader { stored_id: StoredId::of(b"other"), ..raw },
    ] {
        assert!(FrameHeader::decode(&bad.encode()).is_err(), "{bad:?}");
        let frames_len = Row { offset: 0, header: bad }.end();
        let bytes = PackFooter { pack: PACK, rows: vec![Row { offset: 0, header: bad }] }.encode();
        let (footer, trailer) = bytes.split_at(bytes.len() - TRAILER_LEN);
        let trailer = PackTrailer::decode(trailer).unwrap();
        assert!(PackFooter::decode(PACK, &trailer, frames_len, footer).is_err(), "{bad:?}");
        let packs = vec![SegmentPack { id: PACK, len: 200 << 20 }];
        let mut segment = Segment { generation: 0, packs, rows: vec![(Row { offset: 0, header: bad }, 0)] };
        assert!(Segment::decode(&segment.encode()).is_err(), "{bad:?}");
    }
    // Fields that have no place in the struct: kind, codec, flags, reserved bytes.
    for (at, value) in [(9, 0), (9, 6), (10, 2), (12, 1), (15, 0x80), (120, 1), (123, 0xff)] {
        let mut bytes = zstd.encode();
        bytes[at] = value;
        let crc = crc32c::crc32c(&bytes[..124]).to_le_bytes();
        bytes[124..].copy_from_slice(&crc);
        assert!(FrameHeader::decode(&bytes).is_err(), "byte {at} is {value}");
    }
}

#[test]
fn footers_that_lie_about_their_frames_are_refused() {
    let [one, two] = rows()[..] else { unreachable!("two rows") };
    let decode = |rows: Vec<Row>, frames_len| {
        let bytes = PackFooter { pack: PACK, rows }.encode();
        let (footer, trailer) = bytes.split_at(bytes.len() - TRAILER_LEN);
        PackFooter::decode(PACK, &PackTrailer::decode(trailer).unwrap(), frames_len, footer)
    };
    assert!(decode(vec![one, two], FRAMES_LEN).is_ok());
    assert!(decode(vec![one, two], FRAMES_LEN - 1).is_err(), "rows reach into the footer");
    assert!(decode(vec![one, two], FRAMES_LEN + 1).is_err(), "bytes behind the last frame that are no frame's");
    assert!(decode(vec![one, Row { offset: 130, ..two }], FRAMES_LEN - 1).is_err(), "frames overlap");
    assert!(decode(vec![one, one], one.end()).is_err(), "a chunk twice");
    assert!(decode(vec![one, two, Row { offset: u32::MAX, ..two }], FRAMES_LEN).is_err(), "far behind the end");
    // Rows out of order, which the encoder would put right.
    let good = footer().encode();
    let mut bad = good[..good.len() - TRAILER_LEN].to_vec();
    let (first, second) = (bad[28..108].to_vec(), bad[108..188].to_vec());
    bad[28..108].copy_from_slice(&second);
    bad[108..188].copy_from_slice(&first);
    assert!(decode_footer(&with_trailer(&bad)).is_none(), "rows out of order");
}

#[test]
fn counts_are_checked_against_the_bytes_that_are_there() {
    let good = footer().encode();
    for count in [0, 1, 3, u32::MAX, u32::MAX / 80] {
        let mut bad = good[..good.len() - TRAILER_LEN].to_vec();
        bad[24..28].copy_from_slice(&count.to_le_bytes());
        assert!(decode_footer(&with_trailer(&bad)).is_none(), "{count} rows in a footer of two");
    }
    let good = segment().encode();
    let rows_at = 16 + 4 + 2 * 24;
    for at in [16, rows_at] {
        for count in [0, 1, 3, 5, u32::MAX, u32::MAX / 24, u32::MAX / 80] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&count.to_le_bytes());
            let body = bad.len() - Digest::LEN;
            let digest = Digest::of(&bad[..body]);
            bad[body..].copy_from_slice(digest.as_bytes());
            assert!(Segment::decode(&bad).is_err(), "count {count} at {at}");
        }
    }
    for footer_len in [Limits::DEFAULT.footer_bytes + 1, u64::from(u32::MAX)] {
        let footer_len = u32::try_from(footer_len).unwrap().to_le_bytes();
        let trailer = [&[0; Digest::LEN][..], &footer_len, b"FBYPACK0"].concat();
        assert!(PackTrailer::decode(&trailer).is_err(), "a footer over the limit is not asked for");
    }
}

#[test]
fn segments_that_lie_about_their_packs_are_refused() {
    let refused = |change: fn(&mut Segment)| {
        let mut segment = segment();
        change(&mut segment);
        assert!(Segment::decode(&segment.encode()).is_err(), "{segment:?}");
    };
    refused(|segment| segment.packs[0].len = u64::MAX);
    refused(|segment| segment.packs[0].len = Limits::DEFAULT.pack_bytes + 1);
    refused(|segment| segment.packs[0].len = FRAMES_LEN - 1);
    refused(|segment| segment.packs[1].id = segment.packs[0].id);
    refused(|segment| segment.rows[0].1 = 2);
    refused(|segment| segment.rows[0].1 = u32::MAX);
    refused(|segment| segment.rows.push(segment.rows[0]));
    refused(|segment| segment.rows[0].0.offset = u32::MAX);
}

fn is_tree(entries: Vec<Entry>) -> bool {
    let node = TreeNode::Leaf(entries);
    TreeNode::decode(&node.encode(), node.totals().unwrap_or_default()).is_ok()
}

#[test]
fn files_whose_lengths_do_not_add_up_are_refused() {
    let chunk = |len| ChunkRef { id: ChunkId::of(b"chunk"), len };
    let list = |bytes| ListRef { id: ChunkId::of(b"list"), bytes };
    let hole = |offset, len| Hole { offset: offset * HOLE_BLOCK, len: len * HOLE_BLOCK };
    let is_file = |size, content, holes| is_tree(vec![file(b"a", size, content, holes)]);
    let max = Limits::DEFAULT.chunk_bytes;
    assert!(is_file(max.into(), Content::Chunks(vec![chunk(max)]), None));
    assert!(is_file(HOLE_BLOCK, Content::Chunks(Vec::new()), Some(vec![hole(0, 1)])), "nothing but a hole");
    for (size, content) in [
        (1, Content::Inline(Vec::new())),
        (INLINE_MAX as u64 + 1, Content::Inline(vec![1; INLINE_MAX + 1])),
        (0, Content::Chunks(vec![chunk(0)])),
        (5, Content::Chunks(vec![chunk(4)])),
        (u64::from(max) + 1, Content::Chunks(vec![chunk(max + 1)])),
        (0, Content::Lists(1, Vec::new())),
        (7, Content::Lists(1, vec![list(7), list(0)])),
        (7, Content::Lists(0, vec![list(7)])),
        (7, Content::Lists(5, vec![list(7)])),
        (6, Content::Lists(1, vec![list(u64::MAX), list(7)])),
    ] {
        assert!(!is_file(size, content.clone(), None), "{size} {content:?}");
    }
    let inline = || Content::Inline(vec![1]);
    for (size, holes) in [
        (1, vec![]),
        (1 + HOLE_BLOCK, vec![Hole { offset: 1, len: HOLE_BLOCK }]),
        (2, vec![Hole { offset: 0, len: 1 }]),
        (1, vec![hole(0, 0)]),
        (1 + HOLE_BLOCK, vec![hole(2, 1)]),
        (1 + 2 * HOLE_BLOCK, vec![hole(0, 1), hole(1, 1)]),
        (1 + 2 * HOLE_BLOCK, vec![hole(0, 1), hole(0, 1)]),
        (1 + 2 * HOLE_BLOCK, vec![Hole { offset: u64::MAX - HOLE_BLOCK + 1, len: HOLE_BLOCK }]),
    ] {
        assert!(!is_file(size, inline(), Some(holes.clone())), "{size} {holes:?}");
    }
}

#[test]
fn lists_that_are_longer_than_their_bytes_are_refused() {
    let chunk = |len| ChunkRef { id: ChunkId::of(b"chunk"), len };
    let list = |bytes| ListRef { id: ChunkId::of(b"list"), bytes };
    for (bytes_below, node) in [
        (0, ListNode::Chunks(Vec::new())),
        (0, ListNode::Lists(Vec::new())),
        (5, ListNode::Chunks(vec![chunk(5), chunk(0)])),
        (1 << 30, ListNode::Chunks(vec![chunk(1 << 30)])),
        // Thousands of parts that hold nothing, each of them thousands of parts: a file of one byte, read for ever.
        (1, ListNode::Lists([vec![list(1)], vec![list(0); 1000]].concat())),
        (6, ListNode::Lists(vec![list(u64::MAX), list(7)])),
        (8, ListNode::Chunks(vec![chunk(7)])),
    ] {
        assert!(ListNode::decode(&node.encode(), bytes_below).is_err(), "{bytes_below} {node:?}");
    }
}

#[test]
fn folders_that_mislead_are_refused() {
    let good = |name: &[u8]| file(name, 5, Content::Inline(b"water".to_vec()), None);
    let link = |target: &[u8]| Entry { kind: EntryKind::Symlink(target.to_vec()), ..good(b"a") };
    assert!(is_tree(vec![good(b"a"), good(b"b")]));
    for bad in [
        vec![good(b"b"), good(b"a")],
        vec![good(b"a"), good(b"a")],
        vec![good(b"")],
        vec![good(b"..")],
        vec![good(b"a/b")],
        vec![good(&[b'x'; 1025])],
        vec![Entry { mode: 0o10_000, ..good(b"a") }],
        vec![link(b"")],
        vec![link(b"a\0b")],
        vec![link(&[b'x'; 4097])],
    ] {
        assert!(!is_tree(bad.clone()), "{bad:?}");
    }
    // Sums that do not fit into 64 bits.
    let totals = Totals { bytes: u64::MAX, ..Totals::default() };
    let dir = |name: &[u8]| {
        let kind = EntryKind::Dir(Directory { node: ChunkId::of(b"node"), totals });
        Entry { kind, ..good(name) }
    };
    assert!(!is_tree(vec![dir(b"a"), dir(b"b")]));
    let claimed = tree().totals().unwrap();
    for wrong in [
        Totals { files: claimed.files + 1, ..claimed },
        Totals { dirs: claimed.dirs + 1, ..claimed },
        Totals { links: 0, ..claimed },
        Totals { bytes: claimed.bytes - 1, ..claimed },
    ] {
        assert!(TreeNode::decode(&tree().encode(), wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn parts_of_folders_that_mislead_are_refused() {
    let TreeNode::Inner(parts) = inner() else { unreachable!("an inner node") };
    let [one, two] = &parts[..] else { unreachable!("two parts") };
    let is_inner = |parts: Vec<SubtreeRef>| {
        let node = TreeNode::Inner(parts);
        TreeNode::decode(&node.encode(), node.totals().unwrap_or_default()).is_ok()
    };
    assert!(is_inner(parts.clone()) && is_inner(vec![one.clone()]));
    for bad in [
        vec![],
        vec![two.clone(), one.clone()],
        vec![one.clone(), one.clone()],
        vec![SubtreeRef { first: Vec::new(), ..one.clone() }],
        vec![SubtreeRef { first: b"a/b".to_vec(), ..one.clone() }],
        vec![SubtreeRef { totals: Totals::default(), ..one.clone() }],
        vec![one.clone(), SubtreeRef { totals: Totals { bytes: 9, ..Totals::default() }, ..two.clone() }],
    ] {
        assert!(!is_inner(bad.clone()), "{bad:?}");
    }
}

#[test]
fn records_that_no_log_has_are_refused() {
    let refused = |sequence, change: fn(&mut LogRecord)| {
        let mut record = if sequence == 1 { record() } else { removal() };
        change(&mut record);
        let sequence = record.sequence;
        assert!(LogRecord::decode(REPOSITORY, sequence, &record.encode()).is_err(), "{record:?}");
    };
    refused(1, |record| record.sequence = 0);
    refused(1, |record| record.sequence = u64::MAX);
    refused(2, |record| record.sequence = u64::MAX);
    refused(1, |record| record.previous = Some(Digest::of(b"before the first")));
    refused(2, |record| record.previous = None);
    refused(1, |record| record.refs.reverse());
    refused(1, |record| record.refs[1].name = record.refs[0].name.clone());
    refused(1, |record| record.refs[0].sequence = 0);
    refused(1, |record| record.refs[0].sequence = u64::MAX);
    refused(1, |record| record.refs[0].new = None);
    refused(2, |record| record.refs[0].parent = record.refs[0].old);
    refused(2, |record| record.refs[0].envelope = Some(ChunkId::of(b"envelope")));
    refused(2, |record| record.refs[0].step = Some(0));
    refused(1, |record| record.refs[0].step = Some(u64::MAX));
    refused(1, |record| record.segments[0].generation = 1);
    refused(1, |record| record.gc = Some(GcChange::Swept(vec![1])));
    refused(1, |record| record.forgotten = boundary().forgotten);
    assert!(LogRecord::decode(REPOSITORY, 2, &record().encode()).is_err(), "another number's record");
    let other = LogRecord { repository: OTHER, ..record() };
    assert!(LogRecord::decode(REPOSITORY, 1, &other.encode()).is_err(), "another repository's record");
}

#[test]
fn collections_that_nobody_does_are_refused() {
    let refused = |change: fn(&mut LogRecord, &mut Boundary)| {
        let mut record = boundary();
        let Some(GcChange::Boundary(mut line)) = record.gc.take() else { unreachable!("a boundary") };
        change(&mut record, &mut line);
        record.gc = record.gc.take().or(Some(GcChange::Boundary(line)));
        assert!(LogRecord::decode(REPOSITORY, 3, &record.encode()).is_err(), "{record:?}");
    };
    let pack = |number: u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    refused(|_, line| line.generation = 0);
    refused(|_, line| line.generation = 2);
    refused(|record, line| {
        record.index_generation = u64::MAX;
        line.generation = u64::MAX;
    });
    refused(|_, line| line.condemned.reverse());
    refused(|_, line| line.condemned = vec![line.condemned[0]; 2]);
    refused(|_, line| line.dropped = vec![line.dropped[0]; 2]);
    refused(|record, _| record.segments[0].generation = 0);
    refused(|record, _| record.refs = removal().refs);
    refused(|record, _| record.forgotten = Some(Vec::new()));
    refused(|record, _| record.forgotten.iter_mut().flatten().for_each(|one| one.versions.clear()));
    refused(|record, _| record.forgotten.iter_mut().flatten().for_each(|one| one.versions = vec![2, 1]));
    refused(|record, _| record.forgotten.iter_mut().flatten().for_each(|one| one.versions = vec![1, 1]));
    refused(|record, _| record.forgotten.iter_mut().flatten().for_each(|one| one.versions = vec![0]));
    refused(|record, _| record.forgotten.iter_mut().for_each(|list| list.push(list[0].clone())));
    // A sweep adds nothing, and sweeps something.
    refused(|record, _| {
        record.segments[0].generation = 0;
        record.gc = Some(GcChange::Swept(vec![1]));
    });
    for bad in [vec![], vec![2, 1], vec![1, 1], (1..2_000).collect()] {
        let record = LogRecord { gc: Some(GcChange::Swept(bad)), ..swept() };
        assert!(LogRecord::decode(REPOSITORY, 4, &record.encode()).is_err(), "{record:?}");
    }
    // Lists end at their limits.
    let limit = u64::from(Limits::DEFAULT.condemned_packs);
    for (count, is_good) in [(limit, true), (limit + 1, false)] {
        let condemned = (0..count).map(|number| PackId::from_bytes(pack(number))).collect();
        let gc = Some(GcChange::Boundary(Boundary { generation: 1, condemned, dropped: Vec::new() }));
        let record = LogRecord { gc, ..boundary() };
        assert_eq!(LogRecord::decode(REPOSITORY, 3, &record.encode()).is_ok(), is_good, "{count}");
    }
    let limit = u64::from(Limits::DEFAULT.forgotten_versions);
    for (count, is_good) in [(limit, true), (limit + 1, false)] {
        let forgotten = Some(vec![Forgotten { name: "a".parse().unwrap(), versions: (1..=count).collect() }]);
        let record = LogRecord { forgotten, ..boundary() };
        assert_eq!(LogRecord::decode(REPOSITORY, 3, &record.encode()).is_ok(), is_good, "{count}");
    }
}

#[test]
fn states_that_no_log_comes_to_are_refused() {
    let refused = |change: fn(&mut LogState)| {
        let mut state = state(2);
        change(&mut state);
        let sequence = state.sequence;
        assert!(LogState::decode(REPOSITORY, sequence, &state.encode()).is_err(), "{state:?}");
    };
    refused(|state| state.sequence = 0);
    refused(|state| state.sequence = u64::MAX);
    refused(|state| state.last = None);
    refused(|state| state.refs.reverse());
    refused(|state| state.refs[0].sequence = 0);
    refused(|state| state.refs[0].sequence = u64::MAX);
    refused(|state| state.refs[1].sequence = 3);
    refused(|state| state.refs[1].versions.reverse());
    refused(|state| state.refs[1].versions[0].sequence = 0);
    refused(|state| state.refs[1].versions[0].sequence = 2);
    refused(|state| state.refs[1].versions[1].log_sequence = 1);
    refused(|state| state.refs[1].versions[1].log_sequence = 3);
    refused(|state| state.refs[1].versions[1].step = state.refs[1].versions[0].step);
    refused(|state| state.refs[1].versions[0].step = Some(u64::MAX));
    let refused = |change: fn(&mut LogState)| {
        let mut state = state(3);
        change(&mut state);
        assert!(LogState::decode(REPOSITORY, 3, &state.encode()).is_err(), "{state:?}");
    };
    refused(|state| state.index_generation = 0);
    refused(|state| state.index_generation = u64::MAX);
    refused(|state| state.segments[0].generation = 2);
    refused(|state| state.condemned.push(state.condemned[0].clone()));
    refused(|state| state.condemned[0].generation = 2);
    refused(|state| state.condemned[0].since.nanos = 1_000_000_000);
    refused(|state| state.condemned[0].packs.reverse());
    refused(|state| {
        state.condemned[0].packs.clear();
        state.condemned[0].segments.clear();
    });
    assert!(LogState::decode(REPOSITORY, 1, &state(2).encode()).is_err(), "another number's state");
    let other = LogState { repository: OTHER, ..state(2) };
    assert!(LogState::decode(REPOSITORY, 2, &other.encode()).is_err(), "another repository's state");
}

#[test]
fn budget_records_that_nobody_writes_are_refused() {
    let refused = |sequence, change: fn(&mut BudgetRecord)| {
        let mut record = if sequence == 1 { budget() } else { budget_settle() };
        change(&mut record);
        let sequence = record.sequence;
        assert!(BudgetRecord::decode(REPOSITORY, sequence, &record.encode()).is_err(), "{record:?}");
    };
    refused(1, |record| record.sequence = 0);
    refused(2, |record| record.sequence = u64::MAX);
    refused(1, |record| record.previous = Some(Digest::of(b"before the first")));
    refused(2, |record| record.previous = None);
    refused(1, |record| record.time = BAD_TIME);
    refused(1, |record| record.changes.clear());
    refused(1, |record| record.repository = OTHER);
    let set = |change: fn(&mut forebay_format::BudgetSet)| {
        let mut record = budget();
        let BudgetChange::Set(first) = &mut record.changes[0] else { unreachable!("a budget is set first") };
        change(first);
        assert!(BudgetRecord::decode(REPOSITORY, 1, &record.encode()).is_err(), "{record:?}");
    };
    set(|set| set.tenant.clear());
    // It would pass for a job of another tenant.
    set(|set| set.tenant = "acme/train".to_owned());
    set(|set| set.tenant = "x".repeat(256));
    set(|set| set.job = Some("x".repeat(256)));
    for bad in
        [money("usd", 1, 0), money("US", 1, 0), money("", 1, 0), money("USD", 1 << 40, 0), money("USD", 0, 1 << 60)]
    {
        let mut record = budget();
        let BudgetChange::Set(first) = &mut record.changes[0] else { unreachable!("a budget is set first") };
        first.limit = Some(BudgetAmount::Money(bad.clone()));
        assert!(BudgetRecord::decode(REPOSITORY, 1, &record.encode()).is_err(), "{record:?}");
        let mut record = budget_settle();
        let BudgetChange::Settle(first) = &mut record.changes[0] else { unreachable!("a booking ends first") };
        first.cost = Some(bad);
        assert!(BudgetRecord::decode(REPOSITORY, 2, &record.encode()).is_err(), "{record:?}");
    }
    let book = |change: fn(&mut forebay_format::BudgetBooking)| {
        let mut record = budget();
        let Some(BudgetChange::Book(last)) = record.changes.last_mut() else { unreachable!("it books last") };
        change(last);
        assert!(BudgetRecord::decode(REPOSITORY, 1, &record.encode()).is_err(), "{record:?}");
    };
    book(|booking| booking.month = 202_600);
    book(|booking| booking.month = 202_613);
    book(|booking| booking.month = 1_000_001);
    book(|booking| booking.tenant = "a/b".to_owned());
    book(|booking| booking.holder = "x".repeat(256));
}

#[test]
fn budget_states_that_nobody_comes_to_are_refused() {
    let refused = |change: fn(&mut BudgetState)| {
        let mut state = budget_state();
        change(&mut state);
        let sequence = state.sequence;
        assert!(BudgetState::decode(REPOSITORY, sequence, &state.encode()).is_err(), "{state:?}");
    };
    refused(|state| state.sequence = 0);
    refused(|state| state.sequence = u64::MAX);
    refused(|state| state.last = None);
    refused(|state| state.repository = OTHER);
    refused(|state| state.accounts.reverse());
    refused(|state| state.accounts[1] = state.accounts[0].clone());
    refused(|state| state.accounts[0].months.reverse());
    refused(|state| state.accounts[0].months[0].month = 0);
    refused(|state| state.accounts[0].months[0].priced.reverse());
    refused(|state| state.accounts[0].months[0].priced[1] = state.accounts[0].months[0].priced[0].clone());
    refused(|state| state.accounts[0].tenant = "a/b".to_owned());
    refused(|state| state.accounts[2].limit = Some(BudgetAmount::Money(money("USD", u64::MAX, 0))));
    refused(|state| state.open.reverse());
    refused(|state| state.open[1] = state.open[0].clone());
    refused(|state| state.open[0].booking.month = 13);
    refused(|state| state.open[0].accounts = 0);
    refused(|state| state.open[0].accounts = 3);
}

#[test]
fn ledgers_that_no_node_writes_are_refused() {
    let refused = |change: fn(&mut LedgerRecord)| {
        let mut record = ledger();
        change(&mut record);
        let bytes = record.encode();
        assert!(LedgerRecord::decode(REPOSITORY, NODE, record.month, record.sequence, &bytes).is_err(), "{record:?}");
    };
    refused(|record| record.sequence = 0);
    refused(|record| record.sequence = u64::MAX);
    refused(|record| record.month = 202_613);
    refused(|record| record.month = u32::MAX);
    refused(|record| record.time = BAD_TIME);
    refused(|record| record.rows.clear());
    refused(|record| record.rows[0].day = 0);
    refused(|record| record.rows[0].day = 32);
    refused(|record| record.rows.push(ledger_row(30, "acme")));
    refused(|record| record.rows[0].to = "x".repeat(256));
    refused(|record| record.repository = OTHER);
    // Rows out of order, which the encoder would put right.
    let good = ledger().encode();
    let cbor = &good[8..good.len() - Digest::LEN];
    let at = |name: &[u8]| cbor.windows(name.len()).position(|window| window == name).unwrap();
    let (acme, other) = (at(b"\x00\x18\x1e\x01\x64acme"), at(b"\x00\x18\x1e\x01\x64else"));
    let mut bad = cbor.to_vec();
    bad[acme + 5..acme + 9].copy_from_slice(b"else");
    bad[other + 5..other + 9].copy_from_slice(b"acme");
    let error = LedgerRecord::decode(REPOSITORY, NODE, MONTH, 1, &seal(b"FBYLEDG0", &bad)).unwrap_err();
    assert!(matches!(error, DecodeError::Order { index: 2, .. }), "{error:?}");
}

#[test]
fn messages_do_not_grow_with_what_is_forged() {
    let long = file(&vec![b'x'; 1 << 20], 0, Content::Inline(Vec::new()), None);
    let error = TreeNode::decode(&TreeNode::Leaf(vec![long]).encode(), Totals::default()).unwrap_err();
    assert!(matches!(error, DecodeError::EntryName { .. }) && error.to_string().len() < 2_000);
    // A ref name of a million bytes in the place of a short one.
    let encoded = record().encode();
    let cbor = &encoded[8..encoded.len() - Digest::LEN];
    let at = cbor.windows(9).position(|window| window == b"\x68data/one").unwrap();
    let name = [&[0x7a, 0, 0x10, 0, 0][..], &vec![b'A'; 1 << 20]].concat();
    let forged = seal(b"FBYLOGR0", &[&cbor[..at], &name, &cbor[at + 9..]].concat());
    let error = LogRecord::decode(REPOSITORY, 1, &forged).unwrap_err();
    assert!(error.to_string().len() < 200, "{} bytes", error.to_string().len());
}

#[test]
fn objects_over_their_limits_are_not_decoded() {
    let too_long = |error: DecodeError| assert!(matches!(error, DecodeError::TooLong { .. }), "{error:?}");
    let limits = Limits::DEFAULT;
    let zeros = |len: u64| vec![0; usize::try_from(len).unwrap() + 1];
    too_long(RepositoryConfig::decode(&zeros(limits.small_object_bytes)).unwrap_err());
    too_long(Snapshot::decode(&zeros(limits.small_object_bytes)).unwrap_err());
    too_long(TreeNode::decode(&zeros(limits.node_bytes.into()), Totals::default()).unwrap_err());
    too_long(ListNode::decode(&zeros(limits.node_bytes.into()), 0).unwrap_err());
    too_long(LogRecord::decode(REPOSITORY, 1, &zeros(limits.log_record_bytes)).unwrap_err());
    too_long(LogState::decode(REPOSITORY, 1, &zeros(limits.log_state_bytes)).unwrap_err());
    too_long(BudgetRecord::decode(REPOSITORY, 1, &zeros(limits.log_record_bytes)).unwrap_err());
    too_long(BudgetState::decode(REPOSITORY, 1, &zeros(limits.log_state_bytes)).unwrap_err());
    too_long(LedgerRecord::decode(REPOSITORY, NODE, MONTH, 1, &zeros(limits.log_record_bytes)).unwrap_err());
    too_long(Envelope::decode(&zeros(limits.envelope_bytes)).unwrap_err());
}

fn with_trailer(footer: &[u8]) -> Vec<u8> {
    let len = u32::try_from(footer.len()).expect("short").to_le_bytes();
    [footer, Digest::of(footer).as_bytes(), &len, b"FBYPACK0"].concat()
}

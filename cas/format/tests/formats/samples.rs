//! Every object once with everything in it.

use std::collections::BTreeMap;

use forebay_format::{
    BookingId, Boundary, BudgetAccount, BudgetAmount, BudgetBooking, BudgetChange, BudgetMoney, BudgetMonth,
    BudgetOpen, BudgetPriced, BudgetRecord, BudgetSet, BudgetSettlement, BudgetState, ChunkId, ChunkRef, ChunkerParams,
    Cipher, Codec, Content, Digest, Directory, Entry, EntryKind, Envelope, EnvelopeSignature, FRAME_HEADER_LEN,
    FileDigest, FileEntry, Forgotten, FrameHeader, FrameKind, GcChange, Hole, IdScheme, LedgerRecord, LedgerRow,
    LedgerUsage, ListNode, ListRef, LogRecord, LogState, Nonce, PackFooter, PackId, PackTrailer, RefChange,
    RepositoryConfig, Row, Segment, SegmentId, SegmentPack, SegmentRef, Snapshot, SnapshotId, StoredId, SubtreeRef,
    TRAILER_LEN, Timestamp, Totals, TreeNode,
};

use crate::bodies::{MONTH, NODE, PACK, REPOSITORY};

pub(crate) const TIME: Timestamp = Timestamp { seconds: 1_700_000_000, nanos: 123_456_789 };
const BEFORE_1970: Timestamp = Timestamp { seconds: -1, nanos: 500_000_000 };
pub(crate) const CHUNKER: ChunkerParams =
    ChunkerParams { min_bytes: 64 << 10, avg_bytes: 256 << 10, max_bytes: 1 << 20, normalization: 1 };
/// Bytes of the frames of [`rows`]: two headers, 3 and 7 bytes of payload.
pub(crate) const FRAMES_LEN: u64 = 2 * FRAME_HEADER_LEN as u64 + 3 + 7;

/// An object as bytes.
pub(crate) struct Sample {
    /// Name of its golden file.
    pub(crate) name: &'static str,
    /// The fuzz target that takes it.
    pub(crate) target: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// Whether bytes decode in this one's place.
    pub(crate) decodes: fn(&[u8]) -> bool,
}

impl Sample {
    /// Envelopes, nodes, lists and snapshots are chunks: their id protects them, not their own bytes.
    pub(crate) fn protects_itself(&self) -> bool {
        !matches!(self.target, "envelope" | "list" | "snapshot" | "tree")
    }

    /// Where its CBOR begins and ends.
    pub(crate) fn cbor(&self) -> Option<std::ops::Range<usize>> {
        match self.target {
            "budget" | "budgetstate" | "config" | "ledger" | "record" | "state" => {
                Some(8..self.bytes.len() - Digest::LEN)
            }
            "list" | "snapshot" | "tree" => Some(0..self.bytes.len()),
            _ => None,
        }
    }

    /// The same object around another CBOR, its checksum right.
    pub(crate) fn with_cbor(&self, cbor: &[u8]) -> Vec<u8> {
        if self.protects_itself() { seal(&self.bytes[..8], cbor) } else { cbor.to_vec() }
    }
}

pub(crate) fn samples() -> Vec<Sample> {
    let sample = |name, target, bytes, decodes| Sample { name, target, bytes, decodes };
    vec![
        sample("budget", "budget", budget().encode(), |bytes| BudgetRecord::decode(REPOSITORY, 1, bytes).is_ok()),
        sample("budget-settle", "budget", budget_settle().encode(), |bytes| {
            BudgetRecord::decode(REPOSITORY, 2, bytes).is_ok()
        }),
        sample("budgetstate", "budgetstate", budget_state().encode(), |bytes| {
            BudgetState::decode(REPOSITORY, 1, bytes).is_ok()
        }),
        sample("budgetstate-empty", "budgetstate", empty_budget_state().encode(), |bytes| {
            BudgetState::decode(REPOSITORY, 0, bytes).is_ok()
        }),
        sample("config", "config", config().encode(), |bytes| RepositoryConfig::decode(bytes).is_ok()),
        sample("envelope", "envelope", envelope().encode(), |bytes| Envelope::decode(bytes).is_ok()),
        sample("footer", "footer", footer().encode(), |bytes| decode_footer(bytes).is_some()),
        sample("frame", "frame", header(b"one", Codec::Zstd, 50, 3).encode().to_vec(), |bytes| {
            FrameHeader::decode(bytes).is_ok_and(|one| one.base.is_none() && bytes.len() == FRAME_HEADER_LEN)
        }),
        sample("frame-patch", "frame", patch().encode().to_vec(), |bytes| {
            FrameHeader::decode(bytes).is_ok_and(|one| one == patch() && bytes.len() == FRAME_HEADER_LEN)
        }),
        sample("ledger", "ledger", ledger().encode(), |bytes| {
            LedgerRecord::decode(REPOSITORY, NODE, MONTH, 1, bytes).is_ok()
        }),
        sample("list", "list", list().encode(), |bytes| ListNode::decode(bytes, 300).is_ok()),
        sample("list-lists", "list", lists().encode(), |bytes| ListNode::decode(bytes, 1 << 34).is_ok()),
        sample("record", "record", record().encode(), |bytes| LogRecord::decode(REPOSITORY, 1, bytes).is_ok()),
        sample("record-boundary", "record", boundary().encode(), |bytes| {
            LogRecord::decode(REPOSITORY, 3, bytes).is_ok()
        }),
        sample("record-swept", "record", swept().encode(), |bytes| LogRecord::decode(REPOSITORY, 4, bytes).is_ok()),
        sample("record-removal", "record", removal().encode(), |bytes| LogRecord::decode(REPOSITORY, 2, bytes).is_ok()),
        sample("segment-patch", "segment", patched_segment().encode(), |bytes| {
            Segment::decode(bytes).is_ok_and(|segment| segment.rows.len() == 3)
        }),
        sample("segment", "segment", segment().encode(), |bytes| {
            Segment::decode(bytes).is_ok_and(|segment| segment.rows.len() == 4)
        }),
        sample("snapshot", "snapshot", snapshot().encode(), |bytes| Snapshot::decode(bytes).is_ok()),
        sample("state", "state", state(1).encode(), |bytes| LogState::decode(REPOSITORY, 1, bytes).is_ok()),
        sample("state-condemned", "state", state(3).encode(), |bytes| LogState::decode(REPOSITORY, 3, bytes).is_ok()),
        sample("state-empty", "state", state(0).encode(), |bytes| LogState::decode(REPOSITORY, 0, bytes).is_ok()),
        sample("state-removed", "state", state(2).encode(), |bytes| LogState::decode(REPOSITORY, 2, bytes).is_ok()),
        sample("tree", "tree", tree().encode(), |bytes| {
            TreeNode::decode(bytes, tree().totals().expect("small sums")).is_ok()
        }),
        sample("tree-empty", "tree", TreeNode::Leaf(Vec::new()).encode(), |bytes| {
            TreeNode::decode(bytes, Totals::default()).is_ok()
        }),
        sample("tree-inner", "tree", inner().encode(), |bytes| {
            TreeNode::decode(bytes, inner().totals().expect("small sums")).is_ok()
        }),
    ]
}

pub(crate) fn header(word: &[u8], codec: Codec, plain_len: u32, stored_len: u32) -> FrameHeader {
    let id = ChunkId::of(word);
    let stored_id = match codec {
        Codec::Raw => StoredId::from_bytes(*id.as_bytes()),
        Codec::Zstd | Codec::Patch => StoredId::of(word),
    };
    FrameHeader { kind: FrameKind::Data, codec, depth: 0, id, base: None, stored_id, plain_len, stored_len }
}

/// A patch of the chunk `one`.
pub(crate) fn patch() -> FrameHeader {
    let base = Some(ChunkId::of(b"one"));
    FrameHeader { depth: 1, base, ..header(b"three", Codec::Patch, 60, 30) }
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row { offset: 0, header: header(b"one", Codec::Zstd, 50, 3) },
        Row { offset: 131, header: header(b"two", Codec::Raw, 7, 7) },
    ]
}

pub(crate) fn footer() -> PackFooter {
    PackFooter { pack: PACK, rows: rows() }
}

/// Reads a footer with its trailer, behind [`FRAMES_LEN`] bytes of frames.
pub(crate) fn decode_footer(bytes: &[u8]) -> Option<PackFooter> {
    let (footer, trailer) = bytes.split_at(bytes.len().checked_sub(TRAILER_LEN)?);
    let trailer = PackTrailer::decode(trailer).ok()?;
    PackFooter::decode(PACK, &trailer, FRAMES_LEN, footer).ok()
}

/// The same two frames in two packs.
pub(crate) fn segment() -> Segment {
    let packs = [PACK, PackId::from_bytes([8; 16])].map(|id| SegmentPack { id, len: 1_000 }).to_vec();
    let rows = rows().into_iter().flat_map(|row| [(row, 0), (row, 1)]).collect();
    Segment { generation: 5, packs, rows }
}

/// A pack with two frames and a patch of the first.
pub(crate) fn patched_segment() -> Segment {
    let packs = vec![SegmentPack { id: PACK, len: 1_000 }];
    let patch = Row { offset: u32::try_from(FRAMES_LEN).expect("a few bytes"), header: patch() };
    let rows = rows().into_iter().chain([patch]).map(|row| (row, 0)).collect();
    Segment { generation: 5, packs, rows }
}

pub(crate) fn config() -> RepositoryConfig {
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

pub(crate) fn file(name: &[u8], size: u64, content: Content, holes: Option<Vec<Hole>>) -> Entry {
    let digest = FileDigest::of(name);
    let kind = EntryKind::File(FileEntry { size, digest, content, holes, hard_link: (size == 5).then_some(u64::MAX) });
    Entry { name: name.to_vec(), mode: 0o640, mtime: BEFORE_1970, kind }
}

pub(crate) fn tree() -> TreeNode {
    let chunk = ChunkRef { id: ChunkId::of(b"chunk"), len: 300 };
    let list = ListRef { id: ChunkId::of(b"list"), bytes: 1 << 33 };
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

pub(crate) fn inner() -> TreeNode {
    let part = |first: &[u8]| SubtreeRef {
        first: first.to_vec(),
        node: ChunkId::of(first),
        totals: Totals { files: 1, dirs: 0, links: 0, bytes: 10 },
    };
    TreeNode::Inner(vec![part(b"a"), part(b"b")])
}

pub(crate) fn list() -> ListNode {
    let chunk = |word: &[u8], len| ChunkRef { id: ChunkId::of(word), len };
    ListNode::Chunks(vec![chunk(b"x", 100), chunk(b"y", 200)])
}

pub(crate) fn lists() -> ListNode {
    let list = |word: &[u8]| ListRef { id: ChunkId::of(word), bytes: 1 << 33 };
    ListNode::Lists(vec![list(b"x"), list(b"y")])
}

/// Its labels stand in the order of RFC 8949 §4.2.1: shorter keys first.
pub(crate) fn snapshot() -> Snapshot {
    let labels = [("class", "raw"), ("region", "eu"), ("z", "")];
    Snapshot {
        mode: 0o755,
        mtime: TIME,
        root: Directory { node: ChunkId::of(b"root"), totals: Totals { files: 1, dirs: 0, links: 0, bytes: 5 } },
        chunker: CHUNKER,
        labels: BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned()))),
    }
}

pub(crate) fn envelope() -> Envelope {
    let signature = |key_id: Option<&str>, len| EnvelopeSignature {
        key_id: key_id.map(str::to_owned),
        signature: (0_u8..=255).rev().take(len).collect(),
    };
    Envelope {
        payload_type: "application/vnd.in-toto+json".to_owned(),
        payload: br#"{"_type":"https://in-toto.io/Statement/v1"}"#.to_vec(),
        signatures: vec![signature(Some("66301bbf"), 64), signature(None, 70)],
    }
}

/// The first record: two refs, one segment.
pub(crate) fn record() -> LogRecord {
    let change = |name: &str, new| RefChange {
        name: name.parse().expect("a ref name"),
        sequence: 1,
        old: None,
        new: Some(SnapshotId::of(new)),
        parent: None,
        envelope: Some(ChunkId::of(b"envelope")),
        step: (name == "data/two").then_some(1_200),
    };
    LogRecord {
        repository: REPOSITORY,
        sequence: 1,
        previous: None,
        nonce: Nonce::from_bytes([4; 16]),
        writer: "someone@somewhere".to_owned(),
        tool: "forebay 0".to_owned(),
        time: TIME,
        index_generation: 0,
        refs: vec![change("data/one", b"1"), change("data/two", b"2")],
        segments: vec![segment_ref(3, 0)],
        gc: None,
        forgotten: None,
    }
}

pub(crate) fn segment_ref(byte: u8, generation: u64) -> SegmentRef {
    SegmentRef { id: SegmentId::from_bytes([byte; 16]), generation, digest: Digest::of(b"segment"), len: 99 }
}

/// The second record: one of the two refs is removed, the other gets its next version.
pub(crate) fn removal() -> LogRecord {
    let (one, two) = (SnapshotId::of(b"1"), SnapshotId::of(b"2"));
    let change = |name: &str, old, new: Option<SnapshotId>| RefChange {
        name: name.parse().expect("a ref name"),
        sequence: 2,
        old: Some(old),
        new,
        parent: new.map(|_| old),
        envelope: None,
        step: new.map(|_| 0),
    };
    LogRecord {
        sequence: 2,
        previous: Some(Digest::of(&record().encode())),
        refs: vec![change("data/one", one, None), change("data/two", two, Some(SnapshotId::of(b"3")))],
        segments: Vec::new(),
        ..record()
    }
}

/// The third record: two packs are condemned, a segment takes another's place, a version is forgotten.
pub(crate) fn boundary() -> LogRecord {
    let condemned = [2, 5].map(|byte| PackId::from_bytes([byte; 16])).to_vec();
    let dropped = vec![SegmentId::from_bytes([3; 16])];
    LogRecord {
        sequence: 3,
        previous: Some(Digest::of(&removal().encode())),
        refs: Vec::new(),
        segments: vec![segment_ref(1, 1)],
        gc: Some(GcChange::Boundary(Boundary { generation: 1, condemned, dropped })),
        forgotten: Some(vec![Forgotten { name: "data/two".parse().expect("a ref name"), versions: vec![1] }]),
        ..record()
    }
}

/// The fourth record: what the third condemned is gone.
pub(crate) fn swept() -> LogRecord {
    LogRecord {
        sequence: 4,
        previous: Some(Digest::of(&boundary().encode())),
        index_generation: 1,
        segments: Vec::new(),
        gc: Some(GcChange::Swept(vec![1])),
        forgotten: None,
        ..boundary()
    }
}

/// The state after the first so many of [`record`], [`removal`], [`boundary`] and [`swept`].
pub(crate) fn state(records: usize) -> LogState {
    let mut state = LogState::empty(REPOSITORY);
    for record in [record(), removal(), boundary(), swept()].iter().take(records) {
        state.apply(record, Digest::of(&record.encode())).expect("records that follow each other");
    }
    state
}

pub(crate) fn money(currency: &str, whole: u64, part: u64) -> BudgetMoney {
    BudgetMoney { currency: currency.to_owned(), whole, part }
}

pub(crate) fn booking(byte: u8, cost: Option<BudgetMoney>) -> BudgetBooking {
    BudgetBooking {
        id: BookingId::from_bytes([byte; 16]),
        holder: "gateway@somewhere".to_owned(),
        tenant: "acme".to_owned(),
        job: "train".to_owned(),
        month: MONTH,
        bytes: 40 << 20,
        cost,
    }
}

/// The first record: a budget in bytes, one in money, one taken away, two bookings.
pub(crate) fn budget() -> BudgetRecord {
    let set = |job: Option<&str>, limit| {
        BudgetChange::Set(BudgetSet { tenant: "acme".to_owned(), job: job.map(str::to_owned), limit })
    };
    BudgetRecord {
        repository: REPOSITORY,
        sequence: 1,
        previous: None,
        nonce: Nonce::from_bytes([4; 16]),
        writer: "someone@somewhere".to_owned(),
        tool: "forebay 0".to_owned(),
        time: TIME,
        changes: vec![
            set(None, Some(BudgetAmount::Bytes(100 << 20))),
            set(Some("train"), Some(BudgetAmount::Money(money("USD", 25, 0)))),
            set(Some("serve"), None),
            BudgetChange::Book(booking(1, Some(money("USD", 0, 10_000_000_000_000_000)))),
            BudgetChange::Book(booking(2, None)),
        ],
    }
}

/// The second record: both bookings end.
pub(crate) fn budget_settle() -> BudgetRecord {
    let settle = |byte, bytes, cost| {
        BudgetChange::Settle(BudgetSettlement { id: BookingId::from_bytes([byte; 16]), bytes, cost })
    };
    BudgetRecord {
        sequence: 2,
        previous: Some(Digest::of(&budget().encode())),
        changes: vec![settle(1, 1 << 20, Some(money("USD", 0, 1))), settle(2, 0, None)],
        ..budget()
    }
}

pub(crate) fn empty_budget_state() -> BudgetState {
    BudgetState { repository: REPOSITORY, sequence: 0, last: None, accounts: Vec::new(), open: Vec::new() }
}

/// A state after the first record, with what earlier months settled.
pub(crate) fn budget_state() -> BudgetState {
    let account = |job: Option<&str>, limit, months| BudgetAccount {
        tenant: "acme".to_owned(),
        job: job.map(str::to_owned),
        limit,
        months,
    };
    let priced = |currency, bytes| BudgetPriced { bytes, cost: money(currency, 1, 500_000_000_000_000_000) };
    let month =
        |month| BudgetMonth { month, bytes: 1 << 40, priced: vec![priced("EUR", 5), priced("USD", u64::MAX >> 1)] };
    BudgetState {
        sequence: 1,
        last: Some(Digest::of(&budget().encode())),
        accounts: vec![
            account(None, Some(BudgetAmount::Bytes(100 << 20)), vec![month(MONTH - 1), month(MONTH)]),
            account(Some("serve"), None, Vec::new()),
            account(Some("train"), Some(BudgetAmount::Money(money("USD", 25, 0))), Vec::new()),
        ],
        open: vec![
            BudgetOpen { booking: booking(1, Some(money("USD", 0, 10_000_000_000_000_000))), accounts: 2 },
            BudgetOpen { booking: booking(2, None), accounts: 1 },
        ],
        ..empty_budget_state()
    }
}

pub(crate) fn ledger_row(day: u8, tenant: &str) -> LedgerRow {
    LedgerRow {
        day,
        tenant: tenant.to_owned(),
        job: String::new(),
        dataset: "vision/imagenet".to_owned(),
        class: "standard".to_owned(),
        tier: "10g".to_owned(),
        from: "origin:s3".to_owned(),
        to: "gateway".to_owned(),
        usage: LedgerUsage {
            payload_bytes: 10_485_760,
            sent_bytes: 15_728_640,
            wire_bytes: 16_000_000,
            retried_bytes: 5_242_880,
            requests: 30,
            avoided_bytes: 0,
        },
    }
}

pub(crate) fn ledger() -> LedgerRecord {
    LedgerRecord {
        repository: REPOSITORY,
        node: NODE,
        month: MONTH,
        sequence: 1,
        nonce: Nonce::from_bytes([4; 16]),
        time: TIME,
        tool: "forebay 0".to_owned(),
        rows: vec![ledger_row(29, "acme"), ledger_row(30, "acme"), ledger_row(30, "else")],
    }
}

/// A sealed object of this magic around any CBOR.
pub(crate) fn seal(magic: &[u8], cbor: &[u8]) -> Vec<u8> {
    let body = [magic, cbor].concat();
    [&body[..], Digest::of(&body).as_bytes()].concat()
}

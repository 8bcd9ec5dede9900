//! Whatever the encoders write, the decoders read back; bytes never depend on the order in which a value was made.

use forebay_format::{
    BudgetRecord, BudgetState, FrameHeader, HOLE_BLOCK, LedgerRecord, ListNode, LogRecord, LogState, NodeKey,
    PackFooter, PackId, PackTrailer, RefName, RepositoryConfig, RepositoryId, Row, Segment, SegmentPack, Snapshot,
    TRAILER_LEN, Totals, TreeNode, VersionSpec,
};
use proptest::prelude::*;

use crate::bodies::{MONTH, NODE, PACK, REPOSITORY};
use crate::{samples, strategies};

const OTHER_PACK: PackId = PackId::from_bytes([2; 16]);
const OTHER_REPOSITORY: RepositoryId = RepositoryId::from_bytes([2; 16]);

fn frame_impl(header: &FrameHeader) {
    let bytes = header.encode();
    assert_eq!(FrameHeader::decode(&bytes).expect("what was encoded decodes"), *header);
    let with_payload = [&bytes[..], b"payload"].concat();
    assert_eq!(FrameHeader::decode(&with_payload).expect("a payload may follow"), *header);
}

fn footer_impl(rows: Vec<Row>) {
    let frames_len = rows.last().map_or(0, Row::end);
    let mut footer = PackFooter { pack: PACK, rows: rows.clone() };
    let bytes = footer.encode();
    let (footer, trailer) = bytes.split_at(bytes.len() - TRAILER_LEN);
    let trailer = PackTrailer::decode(trailer).expect("a trailer");
    let decoded = PackFooter::decode(PACK, &trailer, frames_len, footer).expect("what was encoded decodes");
    assert_eq!(decoded.rows_by_offset(), rows);
    assert!(PackFooter::decode(OTHER_PACK, &trailer, frames_len, footer).is_err(), "another pack's footer");
    assert!(PackFooter::decode(PACK, &trailer, frames_len + 1, footer).is_err(), "bytes of no frame");
    let mut reversed = PackFooter { pack: PACK, rows: rows.into_iter().rev().collect() };
    assert_eq!(reversed.encode(), bytes);
}

fn segment_impl(rows: &[Row]) {
    let len = rows.last().map_or(0, Row::end) + 100;
    let packs = vec![SegmentPack { id: PACK, len }, SegmentPack { id: OTHER_PACK, len }];
    // The same frames in two packs: the same id twice is right there.
    let both: Vec<_> = rows.iter().flat_map(|row| [(*row, 0), (*row, 1)]).collect();
    let reversed = both.iter().rev().copied().collect();
    let mut segment = Segment { generation: u64::MAX, packs: packs.clone(), rows: both };
    let bytes = segment.encode();
    assert_eq!(Segment::decode(&bytes).expect("what was encoded decodes"), segment);
    assert_eq!(Segment { generation: u64::MAX, packs, rows: reversed }.encode(), bytes);
}

fn config_impl(config: &RepositoryConfig) {
    assert_eq!(RepositoryConfig::decode(&config.encode()).expect("what was encoded decodes"), *config);
}

fn tree_impl(node: &TreeNode) {
    let totals = node.totals().expect("small sums");
    let bytes = node.encode();
    assert_eq!(TreeNode::decode(&bytes, totals).expect("what was encoded decodes"), *node);
    let wrong = Totals { bytes: totals.bytes + 1, ..totals };
    assert!(TreeNode::decode(&bytes, wrong).is_err(), "other totals");
}

fn list_impl(node: &ListNode) {
    let bytes_below = match node {
        ListNode::Chunks(chunks) => chunks.iter().map(|chunk| u64::from(chunk.len)).sum(),
        ListNode::Lists(lists) => lists.iter().map(|list| list.bytes).sum::<u64>(),
    };
    let bytes = node.encode();
    assert_eq!(ListNode::decode(&bytes, bytes_below).expect("what was encoded decodes"), *node);
    assert!(ListNode::decode(&bytes, bytes_below + 1).is_err(), "another length");
}

fn snapshot_impl(snapshot: &Snapshot) {
    let bytes = snapshot.encode();
    let decoded = Snapshot::decode(&bytes).expect("what was encoded decodes");
    assert_eq!(decoded, *snapshot);
    assert_eq!(decoded.id(), forebay_format::SnapshotId::of(&bytes));
}

fn record_impl(record: &LogRecord) {
    let (sequence, bytes) = (record.sequence, record.encode());
    assert_eq!(LogRecord::decode(REPOSITORY, sequence, &bytes).expect("what was encoded decodes"), *record);
    assert!(LogRecord::decode(REPOSITORY, sequence + 1, &bytes).is_err(), "in another's place");
    assert!(LogRecord::decode(OTHER_REPOSITORY, sequence, &bytes).is_err(), "in another repository");
}

fn state_impl(state: &LogState) {
    let (sequence, bytes) = (state.sequence, state.encode());
    assert_eq!(LogState::decode(REPOSITORY, sequence, &bytes).expect("what was encoded decodes"), *state);
    assert_eq!(LogState::sequence_of(&bytes), Some(sequence));
    assert!(LogState::decode(REPOSITORY, sequence + 1, &bytes).is_err(), "in another's place");
    assert!(LogState::decode(OTHER_REPOSITORY, sequence, &bytes).is_err(), "in another repository");
}

fn budget_impl(record: &BudgetRecord) {
    let (sequence, bytes) = (record.sequence, record.encode());
    assert_eq!(BudgetRecord::decode(REPOSITORY, sequence, &bytes).expect("what was encoded decodes"), *record);
    assert!(BudgetRecord::decode(REPOSITORY, sequence + 1, &bytes).is_err(), "in another's place");
    assert!(BudgetRecord::decode(OTHER_REPOSITORY, sequence, &bytes).is_err(), "in another repository");
}

fn budget_state_impl(state: &BudgetState) {
    let (sequence, bytes) = (state.sequence, state.encode());
    assert_eq!(BudgetState::decode(REPOSITORY, sequence, &bytes).expect("what was encoded decodes"), *state);
    assert!(BudgetState::decode(REPOSITORY, sequence + 1, &bytes).is_err(), "in another's place");
    assert!(BudgetState::decode(OTHER_REPOSITORY, sequence, &bytes).is_err(), "in another repository");
}

fn ledger_impl(mut record: LedgerRecord) {
    let (sequence, bytes) = (record.sequence, record.encode());
    let decode = |repository, node, month, sequence| LedgerRecord::decode(repository, node, month, sequence, &bytes);
    assert_eq!(decode(REPOSITORY, NODE, MONTH, sequence).expect("what was encoded decodes"), record);
    assert!(decode(OTHER_REPOSITORY, NODE, MONTH, sequence).is_err(), "in another repository");
    assert!(decode(REPOSITORY, NodeKey::from_bytes([2; 32]), MONTH, sequence).is_err(), "of another node");
    assert!(decode(REPOSITORY, NODE, MONTH + 1, sequence).is_err(), "of another month");
    assert!(decode(REPOSITORY, NODE, MONTH, sequence + 1).is_err(), "in another's place");
    record.rows.reverse();
    assert_eq!(record.encode(), bytes, "whatever the order of the rows was");
}

fn version_impl(name: &RefName, sequence: u64, prefix: &str) {
    let parse = |version: &str| VersionSpec::parse(&format!("{name}{version}")).expect("a version");
    assert_eq!(parse(""), (name.clone(), VersionSpec::Newest));
    assert_eq!(parse(&format!("@{sequence}")), (name.clone(), VersionSpec::Sequence(sequence)));
    // Digits alone are a number, unless they are more than a number has.
    let expected = match prefix.parse() {
        Ok(sequence) => VersionSpec::Sequence(sequence),
        Err(_) => VersionSpec::IdPrefix(prefix.to_owned()),
    };
    assert_eq!(parse(&format!("@{prefix}")), (name.clone(), expected.clone()));
    assert_eq!(parse(&format!("@{}", prefix.to_uppercase())), (name.clone(), expected));
}

proptest! {
    #[test]
    fn frame_proptest(header in strategies::header()) {
        frame_impl(&header);
    }

    #[test]
    fn footer_proptest(rows in strategies::rows()) {
        footer_impl(rows);
    }

    #[test]
    fn segment_proptest(rows in strategies::rows()) {
        segment_impl(&rows);
    }

    #[test]
    fn config_proptest(config in strategies::config()) {
        config_impl(&config);
    }

    #[test]
    fn tree_proptest(node in strategies::tree()) {
        tree_impl(&node);
    }

    #[test]
    fn list_proptest(node in strategies::list()) {
        list_impl(&node);
    }

    #[test]
    fn snapshot_proptest(snapshot in strategies::snapshot()) {
        snapshot_impl(&snapshot);
    }

    #[test]
    fn record_proptest(record in strategies::record()) {
        record_impl(&record);
    }

    #[test]
    fn state_proptest(state in strategies::state()) {
        state_impl(&state);
    }

    #[test]
    fn budget_proptest(record in strategies::budget()) {
        budget_impl(&record);
    }

    #[test]
    fn budget_state_proptest(state in strategies::budget_state()) {
        budget_state_impl(&state);
    }

    #[test]
    fn ledger_proptest(record in strategies::ledger()) {
        ledger_impl(record);
    }

    #[test]
    fn version_proptest(name in strategies::ref_name(), sequence in any::<u64>(), prefix in "[0-9a-f]{8,64}") {
        version_impl(&name, sequence, &prefix);
    }
}

#[test]
fn frame_cases() {
    for row in samples::rows() {
        frame_impl(&row.header);
    }
    // The longest chunk there is, and none.
    let mut header = samples::header(b"", forebay_format::Codec::Raw, 0, 0);
    frame_impl(&header);
    (header.plain_len, header.stored_len) = (16 << 20, 16 << 20);
    frame_impl(&header);
}

#[test]
fn footer_cases() {
    footer_impl(Vec::new());
    footer_impl(samples::rows());
}

#[test]
fn segment_cases() {
    segment_impl(&[]);
    segment_impl(&samples::rows());
}

#[test]
fn config_cases() {
    config_impl(&samples::config());
}

#[test]
fn tree_cases() {
    for node in [TreeNode::Leaf(Vec::new()), samples::tree(), samples::inner()] {
        tree_impl(&node);
    }
    // A file of nothing but a hole has no chunk.
    let holes = Some(vec![forebay_format::Hole { offset: 0, len: HOLE_BLOCK }]);
    let content = forebay_format::Content::Chunks(Vec::new());
    tree_impl(&TreeNode::Leaf(vec![samples::file(b"a", HOLE_BLOCK, content, holes)]));
}

#[test]
fn list_cases() {
    list_impl(&samples::list());
    list_impl(&samples::lists());
}

#[test]
fn snapshot_cases() {
    snapshot_impl(&samples::snapshot());
    // In byte order the second key would be the first: encoded, the shorter one is.
    let mut snapshot = samples::snapshot();
    snapshot.labels = [("aaa", "1"), ("zz", "2")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    snapshot_impl(&snapshot);
    let bytes = snapshot.encode();
    assert!(bytes.ends_with(b"\xa2\x62zz\x612\x63aaa\x611"), "{bytes:02x?}");
}

#[test]
fn record_cases() {
    record_impl(&samples::record());
    record_impl(&samples::removal());
}

#[test]
fn state_cases() {
    for records in 0..=2 {
        state_impl(&samples::state(records));
    }
}

#[test]
fn budget_cases() {
    budget_impl(&samples::budget());
    budget_impl(&samples::budget_settle());
    budget_state_impl(&samples::budget_state());
    budget_state_impl(&samples::empty_budget_state());
}

#[test]
fn ledger_cases() {
    ledger_impl(samples::ledger());
    let name = "ledger/".to_owned() + &"05".repeat(32) + "/2026-11/00000000000000000001";
    assert_eq!(samples::ledger().path(), name);
    assert_eq!(BudgetRecord::path(7), "ledger/budget/00000000000000000007");
}

#[test]
fn version_cases() {
    let name = "a".parse().unwrap();
    version_impl(&name, 0, "00000000");
    version_impl(&name, u64::MAX, "99999999999999999999");
}

//! What a fuzzer does with bytes: decode them, and if they decode, encode them again to the same bytes.
//!
//! Shared by the fuzz targets and by the smoke test of `forebay-format`.

use forebay_format::{
    FRAME_HEADER_LEN, FrameHeader, ListNode, LogRecord, LogState, PackFooter, PackId, PackTrailer, RepositoryConfig,
    RepositoryId, Segment, Snapshot, TRAILER_LEN, Totals, TreeNode, VersionSpec, check_entry_name,
};

/// A target: its name, and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 10] = [
    ("config", config),
    ("footer", footer),
    ("frame", frame),
    ("list", list),
    ("name", name),
    ("record", record),
    ("segment", segment),
    ("snapshot", snapshot),
    ("state", state),
    ("tree", tree),
];

/// The repository that forged records claim to belong to.
pub const REPOSITORY: RepositoryId = RepositoryId::from_bytes([7; 16]);
/// The pack that forged footers claim to belong to.
pub const PACK: PackId = PackId::from_bytes([9; 16]);
/// The number that forged records and states claim to have.
pub const SEQUENCE: u64 = 1;
/// The content length that forged lists claim to have.
pub const LIST_BYTES: u64 = 300;

fn frame(data: &[u8]) {
    if let Ok(header) = FrameHeader::decode(data) {
        assert_eq!(header.encode(), data[..FRAME_HEADER_LEN]);
    }
}

/// A whole pack's end: footer and trailer as they lie there, with as many frame bytes before as the first byte says.
fn footer(data: &[u8]) {
    let Some((frames_len, data)) = data.split_first() else { return };
    let Some(at) = data.len().checked_sub(TRAILER_LEN) else { return };
    let Ok(trailer) = PackTrailer::decode(&data[at..]) else { return };
    if let Ok(mut footer) = PackFooter::decode(PACK, &trailer, (*frames_len).into(), &data[..at]) {
        assert_eq!(footer.encode(), data);
    }
}

fn segment(data: &[u8]) {
    if let Ok(mut segment) = Segment::decode(data) {
        assert_eq!(segment.encode(), data);
    }
}

fn config(data: &[u8]) {
    if let Ok(config) = RepositoryConfig::decode(data) {
        assert_eq!(config.encode(), data);
    }
}

fn tree(data: &[u8]) {
    // Any totals: the node is asked for its own, so that the checks behind that one are reached too.
    if let Ok(node) = TreeNode::decode(data, Totals::default()) {
        assert_eq!(node.encode(), data);
    }
    if let Ok(node) = minicbor::decode::<TreeNode>(data)
        && let Some(totals) = node.totals()
        && let Ok(node) = TreeNode::decode(data, totals)
    {
        assert_eq!(node.encode(), data);
    }
}

fn list(data: &[u8]) {
    if let Ok(node) = ListNode::decode(data, LIST_BYTES) {
        assert_eq!(node.encode(), data);
    }
}

fn snapshot(data: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(data) {
        assert_eq!(snapshot.encode(), data);
    }
}

fn record(data: &[u8]) {
    if let Ok(record) = LogRecord::decode(REPOSITORY, SEQUENCE, data) {
        assert_eq!(record.encode(), data);
        let mut state = LogState::empty(REPOSITORY);
        let _refused = state.apply(&record, forebay_format::Digest::of(data));
    }
}

fn state(data: &[u8]) {
    if let Ok(state) = LogState::decode(REPOSITORY, SEQUENCE, data) {
        assert_eq!(state.encode(), data);
    }
}

fn name(data: &[u8]) {
    if check_entry_name(data).is_ok() {
        assert!(!data.is_empty() && !data.contains(&b'/') && !data.contains(&0) && data != b"." && data != b"..");
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _parsed = VersionSpec::parse(text);
    }
}

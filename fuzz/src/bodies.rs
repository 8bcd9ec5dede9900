//! What a fuzzer does with bytes: decode them, and if they decode, encode them again to the same bytes.
//!
//! Checksums are made right before a second try, since no fuzzer finds a BLAKE3 by itself and what lies behind it would
//! never be reached. Shared by the fuzz targets and by the smoke test of `forebay-format`.

use forebay_format::{
    BudgetRecord, BudgetState, DecodeError, Digest, Envelope, FRAME_HEADER_LEN, FrameHeader, LedgerRecord, ListNode,
    LogRecord, LogState, NodeKey, PackFooter, PackId, PackTrailer, RefName, RepositoryConfig, RepositoryId, Segment,
    Snapshot, StepSpec, TRAILER_LEN, Totals, TreeNode, VersionSpec, check_entry_name,
};

/// A target: its name, and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 14] = [
    ("budget", budget),
    ("budgetstate", budget_state),
    ("config", config),
    ("envelope", envelope),
    ("footer", footer),
    ("frame", frame),
    ("ledger", ledger),
    ("list", list),
    ("name", name),
    ("record", record),
    ("segment", segment),
    ("snapshot", snapshot),
    ("state", state),
    ("tree", tree),
];

/// The repository that forged records and states claim to belong to.
pub const REPOSITORY: RepositoryId = RepositoryId::from_bytes([7; 16]);
/// The pack that forged footers claim to belong to.
pub const PACK: PackId = PackId::from_bytes([9; 16]);
/// The node that forged ledgers claim to come from.
pub const NODE: NodeKey = NodeKey::from_bytes([5; 32]);
/// The month that forged ledgers claim to be of.
pub const MONTH: u32 = 202_611;
/// The numbers that forged records and states may have.
const SEQUENCES: [u64; 5] = [0, 1, 2, 3, 4];

fn frame(data: &[u8]) {
    let mut sealed = data.to_vec();
    if let Some(header) = sealed.get_mut(..FRAME_HEADER_LEN) {
        let (body, crc) = header.split_at_mut(FRAME_HEADER_LEN - 4);
        crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    for data in [data, &sealed] {
        if let Ok(header) = FrameHeader::decode(data) {
            assert_eq!(header.encode(), data[..FRAME_HEADER_LEN]);
        }
    }
}

/// The end of a pack: footer and trailer as they lie there, with as many bytes of frames before as the rows need.
fn footer(data: &[u8]) {
    let Some(at) = data.len().checked_sub(TRAILER_LEN) else { return };
    let mut sealed = data.to_vec();
    let digest = Digest::of(&data[..at]);
    sealed[at..at + Digest::LEN].copy_from_slice(digest.as_bytes());
    sealed[at + Digest::LEN..at + Digest::LEN + 4].copy_from_slice(&u32::try_from(at).unwrap_or(0).to_le_bytes());
    for data in [data, &sealed] {
        let Ok(trailer) = PackTrailer::decode(&data[at..]) else { continue };
        let decode = |frames_len| PackFooter::decode(PACK, &trailer, frames_len, &data[..at]);
        let decoded = match decode(0) {
            Err(DecodeError::Contradiction { claimed, .. }) => decode(claimed),
            other => other,
        };
        if let Ok(mut footer) = decoded {
            assert_eq!(footer.encode(), data);
        }
    }
}

fn segment(data: &[u8]) {
    for data in [data, &sealed(data)] {
        if let Ok(mut segment) = Segment::decode(data) {
            assert_eq!(segment.encode(), data);
        }
    }
}

fn config(data: &[u8]) {
    for data in [data, &sealed(data)] {
        if let Ok(config) = RepositoryConfig::decode(data) {
            assert_eq!(config.encode(), data);
        }
    }
}

/// An envelope has many forms, and each means the same as the one that is written.
fn envelope(data: &[u8]) {
    if let Ok(envelope) = Envelope::decode(data) {
        assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
    }
}

fn tree(data: &[u8]) {
    // Any totals: the node is asked for its own, so that the checks behind that one are reached too.
    let own = minicbor::decode::<TreeNode>(data).ok().and_then(|node| node.totals());
    for totals in [Totals::default(), own.unwrap_or_default()] {
        if let Ok(node) = TreeNode::decode(data, totals) {
            assert_eq!(node.encode(), data);
            assert_eq!(node.totals(), Some(totals));
        }
    }
}

fn list(data: &[u8]) {
    let decoded = match ListNode::decode(data, 0) {
        Err(DecodeError::Contradiction { actual, .. }) => ListNode::decode(data, actual),
        other => other,
    };
    if let Ok(node) = decoded {
        assert_eq!(node.encode(), data);
    }
}

fn snapshot(data: &[u8]) {
    if let Ok(snapshot) = Snapshot::decode(data) {
        assert_eq!(snapshot.encode(), data);
    }
}

fn record(data: &[u8]) {
    for data in [data, &sealed(data)] {
        for sequence in SEQUENCES {
            if let Ok(record) = LogRecord::decode(REPOSITORY, sequence, data) {
                assert_eq!(record.encode(), data);
                let mut state = LogState::empty(REPOSITORY);
                let _refused = state.apply(&record, Digest::of(data));
            }
        }
    }
}

fn state(data: &[u8]) {
    for data in [data, &sealed(data)] {
        for sequence in SEQUENCES {
            if let Ok(state) = LogState::decode(REPOSITORY, sequence, data) {
                assert_eq!(state.encode(), data);
                assert_eq!(LogState::sequence_of(data), Some(sequence));
            }
        }
    }
}

fn budget(data: &[u8]) {
    for data in [data, &sealed(data)] {
        for sequence in SEQUENCES {
            if let Ok(record) = BudgetRecord::decode(REPOSITORY, sequence, data) {
                assert_eq!(record.encode(), data);
            }
        }
    }
}

fn budget_state(data: &[u8]) {
    for data in [data, &sealed(data)] {
        for sequence in SEQUENCES {
            if let Ok(state) = BudgetState::decode(REPOSITORY, sequence, data) {
                assert_eq!(state.encode(), data);
            }
        }
    }
}

fn ledger(data: &[u8]) {
    for data in [data, &sealed(data)] {
        for sequence in SEQUENCES {
            if let Ok(mut record) = LedgerRecord::decode(REPOSITORY, NODE, MONTH, sequence, data) {
                assert_eq!(record.encode(), data);
            }
        }
    }
}

fn name(data: &[u8]) {
    if check_entry_name(data).is_ok() {
        assert!(!data.is_empty() && !data.contains(&b'/') && !data.contains(&0) && data != b"." && data != b"..");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = text.parse::<RefName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok((name, version)) = VersionSpec::parse(text) {
        let again = match &version {
            VersionSpec::Newest => name.to_string(),
            VersionSpec::Sequence(sequence) => format!("{name}@{sequence}"),
            VersionSpec::IdPrefix(prefix) => format!("{name}@{prefix}"),
        };
        assert_eq!(VersionSpec::parse(&again), Ok((name, version)));
    }
    if let Ok((name, step)) = StepSpec::parse(text) {
        assert_eq!(StepSpec::parse(&format!("{name}@{step}")), Ok((name, step)));
    }
}

/// The same bytes with the right BLAKE3 at the end.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut sealed = data.to_vec();
    if let Some(at) = data.len().checked_sub(Digest::LEN) {
        sealed[at..].copy_from_slice(Digest::of(&data[..at]).as_bytes());
    }
    sealed
}

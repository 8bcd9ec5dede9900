//! Whatever the encoders write, the decoders read back.

use forebay_format::{
    ChunkId, ChunkRef, Codec, Content, Entry, EntryKind, FileDigest, FileEntry, FrameHeader, FrameKind, HOLE_BLOCK,
    Hole, PackFooter, PackId, PackTrailer, Row, Segment, SegmentPack, StoredId, TRAILER_LEN, Timestamp, TreeNode,
    check_entry_name,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn id() -> impl Strategy<Value = ChunkId> {
    any::<[u8; 32]>().prop_map(ChunkId::from_bytes)
}

fn header() -> impl Strategy<Value = FrameHeader> {
    let kind = prop_oneof![
        Just(FrameKind::Data),
        Just(FrameKind::Tree),
        Just(FrameKind::List),
        Just(FrameKind::Snapshot),
        Just(FrameKind::Envelope)
    ];
    (kind, id(), any::<[u8; 32]>(), 0..=16_u32 << 20, 0..100_000_u32, any::<bool>()).prop_map(
        |(kind, id, stored, plain_len, stored_len, raw)| {
            let (codec, stored_id, plain_len) =
                if raw { (Codec::Raw, *id.as_bytes(), stored_len) } else { (Codec::Zstd, stored, plain_len) };
            let stored_id = StoredId::from_bytes(stored_id);
            FrameHeader { kind, codec, depth: 0, id, base: None, stored_id, plain_len, stored_len }
        },
    )
}

/// Rows of one pack: no id twice, frames one behind the other with gaps.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    vec((header(), 0..4096_u32), 0..40).prop_map(|headers| {
        let mut seen = std::collections::BTreeSet::new();
        let mut end = 0;
        let mut rows = Vec::new();
        for (header, gap) in headers {
            if seen.insert(header.id) {
                let offset = end + gap;
                end = offset + u32::try_from(header.frame_len()).expect("small");
                rows.push(Row { offset, header });
            }
        }
        rows
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = vec(any::<u8>(), 1..30).prop_filter("a name", |name| check_entry_name(name).is_ok());
    let inline = vec(any::<u8>(), 0..200).prop_map(|bytes| (bytes.len() as u64, Content::Inline(bytes)));
    let chunks = vec((id(), 1..1_000_000_u32), 0..50).prop_map(|chunks| {
        let chunks: Vec<ChunkRef> = chunks.into_iter().map(|(id, len)| ChunkRef { id, len }).collect();
        (chunks.iter().map(|chunk| u64::from(chunk.len)).sum(), Content::Chunks(chunks))
    });
    let file = (prop_oneof![inline, chunks], any::<[u8; 32]>(), any::<Option<u64>>(), 0..5_u64).prop_map(
        |((bytes, content), digest, hard_link, holes)| {
            let holes: Vec<Hole> =
                (0..holes).map(|n| Hole { offset: (3 * n) * HOLE_BLOCK, len: 2 * HOLE_BLOCK }).collect();
            let reach = holes.last().map_or(0, |hole| hole.offset + hole.len);
            let size = bytes + holes.iter().map(|hole| hole.len).sum::<u64>();
            // Holes lie inside the file: drop them where the content is too short to reach around them.
            let (size, holes) = if size >= reach && !holes.is_empty() { (size, Some(holes)) } else { (bytes, None) };
            EntryKind::File(FileEntry { size, digest: FileDigest::from_bytes(digest), content, holes, hard_link })
        },
    );
    let target = vec(1..=255_u8, 1..100).prop_map(EntryKind::Symlink);
    (name, 0..=0o7777_u32, any::<i64>(), 0..1_000_000_000_u32, prop_oneof![file, target])
        .prop_map(|(name, mode, seconds, nanos, kind)| Entry { name, mode, mtime: Timestamp { seconds, nanos }, kind })
}

fn frame_impl(header: &FrameHeader) {
    assert_eq!(FrameHeader::decode(&header.encode()).expect("what was encoded decodes"), *header);
}

fn footer_impl(rows: Vec<Row>) {
    let pack = PackId::from_bytes([1; 16]);
    let frames_len = rows.last().map_or(0, Row::end);
    let mut footer = PackFooter { pack, rows: rows.clone() };
    let bytes = footer.encode();
    let at = bytes.len() - TRAILER_LEN;
    let trailer = PackTrailer::decode(&bytes[at..]).expect("a trailer");
    let decoded = PackFooter::decode(pack, &trailer, frames_len, &bytes[..at]).expect("what was encoded decodes");
    assert_eq!(decoded.rows_by_offset(), rows);
    let other = PackId::from_bytes([2; 16]);
    assert!(PackFooter::decode(other, &trailer, frames_len, &bytes[..at]).is_err(), "another pack's footer");
}

fn segment_impl(rows: Vec<Row>) {
    let len = rows.last().map_or(0, Row::end) + 100;
    let packs = vec![
        SegmentPack { id: PackId::from_bytes([1; 16]), len },
        SegmentPack { id: PackId::from_bytes([2; 16]), len },
    ];
    // The same frames in two packs: the same id twice is right there.
    let both = rows.iter().flat_map(|row| [(*row, 0), (*row, 1)]).collect();
    let mut segment = Segment { generation: u64::MAX, packs, rows: both };
    let bytes = segment.encode();
    assert_eq!(Segment::decode(&bytes).expect("what was encoded decodes"), segment);
}

fn tree_impl(entries: Vec<Entry>) {
    let node = TreeNode::Leaf(entries);
    let Some(totals) = node.totals() else { return };
    assert_eq!(TreeNode::decode(&node.encode(), totals).expect("what was encoded decodes"), node);
}

proptest! {
    #[test]
    fn frame_proptest(header in header()) {
        frame_impl(&header);
    }

    #[test]
    fn footer_proptest(rows in rows()) {
        footer_impl(rows);
    }

    #[test]
    fn segment_proptest(rows in rows()) {
        segment_impl(rows);
    }

    #[test]
    fn tree_proptest(entries in btree_set(entry_key(), 0..30)) {
        tree_impl(entries.into_iter().map(|key| key.0).collect());
    }
}

/// Entries sorted and told apart by their names alone, as in a folder.
#[derive(Debug, Clone)]
struct ByName(Entry);

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

fn entry_key() -> impl Strategy<Value = ByName> {
    entry().prop_map(ByName)
}

#[test]
fn empty_cases() {
    footer_impl(Vec::new());
    segment_impl(Vec::new());
    tree_impl(Vec::new());
}

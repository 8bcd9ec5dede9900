//! Values of every format, as honest writers make them.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    BookingId, Boundary, BudgetAccount, BudgetAmount, BudgetBooking, BudgetChange, BudgetMoney, BudgetMonth,
    BudgetOpen, BudgetPriced, BudgetRecord, BudgetSet, BudgetSettlement, BudgetState, ChunkId, ChunkRef, ChunkerParams,
    Cipher, Codec, Condemned, Content, Digest, Directory, Entry, EntryKind, FileDigest, FileEntry, Forgotten,
    FrameHeader, FrameKind, GcChange, HOLE_BLOCK, Hole, IdScheme, LedgerRecord, LedgerRow, LedgerUsage, ListNode,
    ListRef, LogRecord, LogState, Nonce, PATCH_DEPTH_MAX, PackId, RefChange, RefName, RefState, RefVersion,
    RepositoryConfig, Row, SegmentId, SegmentRef, Snapshot, SnapshotId, StoredId, SubtreeRef, Timestamp, Totals,
    TreeNode, check_entry_name,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::bodies::{MONTH, NODE, REPOSITORY};

/// What a writer does to a log in one record.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// New versions of refs; `None` removes.
    pub(crate) refs: BTreeMap<RefName, Option<SnapshotId>>,
    pub(crate) segments: Vec<SegmentRef>,
    pub(crate) time: Timestamp,
    /// A collection of garbage instead: so many of the live segments are dropped, these packs are condemned.
    pub(crate) boundary: Option<(usize, BTreeSet<PackId>)>,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    // Few names, so that the steps meet.
    let name = select(vec!["a", "a-b", "a/b", "b"]).prop_map(|name| name.parse().expect("a ref name"));
    let refs = btree_map(name, option::weighted(0.7, snapshot_id()), 0..4);
    let boundary = option::weighted(0.2, (0..4_usize, pack_ids()));
    (refs, vec(segment_ref(), 0..3), time(), boundary).prop_map(|(refs, segments, time, boundary)| Step {
        refs,
        segments,
        time,
        boundary,
    })
}

pub(crate) fn header() -> impl Strategy<Value = FrameHeader> {
    let kind =
        select(vec![FrameKind::Data, FrameKind::Tree, FrameKind::List, FrameKind::Snapshot, FrameKind::Envelope]);
    let codec = select(vec![Codec::Raw, Codec::Zstd, Codec::Patch]);
    let lens = (0..=16_u32 << 20, 0..100_000_u32);
    (kind, codec, chunk_id(), chunk_id(), any::<[u8; 32]>(), 1..=PATCH_DEPTH_MAX, lens).prop_map(
        |(kind, codec, id, base, stored, depth, (plain_len, stored_len))| {
            let stored_id = StoredId::from_bytes(stored);
            let zstd = FrameHeader { kind, codec, depth: 0, id, base: None, stored_id, plain_len, stored_len };
            match codec {
                Codec::Zstd => zstd,
                Codec::Raw => {
                    FrameHeader { stored_id: StoredId::from_bytes(*id.as_bytes()), plain_len: stored_len, ..zstd }
                }
                Codec::Patch => FrameHeader {
                    kind: FrameKind::Data,
                    depth,
                    base: Some(base),
                    plain_len: plain_len.max(stored_len + 1),
                    ..zstd
                },
            }
        },
    )
}

/// Rows of one pack: no id twice, frames one behind the other with gaps.
pub(crate) fn rows() -> impl Strategy<Value = Vec<Row>> {
    vec((header(), 0..4096_u32), 0..40).prop_map(|headers| {
        let mut seen = BTreeSet::new();
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

pub(crate) fn config() -> impl Strategy<Value = RepositoryConfig> {
    (any::<[u8; 16]>(), chunker(), time()).prop_map(|(id, chunker, created)| RepositoryConfig {
        format: 0,
        id: forebay_format::RepositoryId::from_bytes(id),
        chunker,
        id_scheme: IdScheme::Blake3,
        cipher: Cipher::None,
        min_writer: 0,
        created,
    })
}

/// All sizes that chunkers take.
pub(crate) fn chunker() -> impl Strategy<Value = ChunkerParams> {
    (8..=22_u32, 0..=3_u8)
        .prop_flat_map(|(bits, normalization)| {
            let avg_bytes = 1_u32 << bits;
            let min = 32..=(avg_bytes / 2 - 1).min(1 << 19);
            let max = (avg_bytes / 2 + 1).max(512)..=8_u32 << 20;
            (min, Just(avg_bytes), max, Just(normalization))
        })
        .prop_map(|(min, avg_bytes, max, normalization)| ChunkerParams {
            min_bytes: min * 2,
            avg_bytes,
            max_bytes: max * 2,
            normalization,
        })
}

pub(crate) fn tree() -> impl Strategy<Value = TreeNode> {
    let entry = (0..=0o7777_u32, time(), kind());
    let leaf = btree_map(entry_name(), entry, 0..30).prop_map(|entries| {
        let entry = |(name, (mode, mtime, kind))| Entry { name, mode, mtime, kind };
        TreeNode::Leaf(entries.into_iter().map(entry).collect())
    });
    let some = totals().prop_filter("not empty", |totals| totals.files + totals.dirs + totals.links > 0);
    let inner = btree_map(entry_name(), (chunk_id(), some), 1..20).prop_map(|parts| {
        let part = |(first, (node, totals))| SubtreeRef { first, node, totals };
        TreeNode::Inner(parts.into_iter().map(part).collect())
    });
    prop_oneof![4 => leaf, 1 => inner]
}

pub(crate) fn list() -> impl Strategy<Value = ListNode> {
    prop_oneof![vec(chunk_ref(), 1..60).prop_map(ListNode::Chunks), vec(list_ref(), 1..60).prop_map(ListNode::Lists),]
}

pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    let labels = btree_map(".{0,30}", ".{0,30}", 0..8);
    (0..=0o7777_u32, time(), directory(), chunker(), labels).prop_map(|(mode, mtime, root, chunker, labels)| Snapshot {
        mode,
        mtime,
        root,
        chunker,
        labels,
    })
}

pub(crate) fn record() -> impl Strategy<Value = LogRecord> {
    let vouched = (option::of(chunk_id()), option::of(step_number()));
    let change = (sequence(), option::of(snapshot_id()), option::of(snapshot_id()), vouched);
    let refs = btree_map(ref_name(), (change, snapshot_id()), 0..6).prop_map(|changes| {
        let change = |(name, ((sequence, new, parent, vouched), old)): (RefName, ((_, Option<_>, _, _), _))| {
            let (old, parent, (envelope, step)) = match new {
                None => (Some(old), None, (None, None)),
                Some(_) => (parent, parent, vouched),
            };
            RefChange { name, sequence, old, new, parent, envelope, step }
        };
        changes.into_iter().map(change).collect::<Vec<_>>()
    });
    let head = (sequence(), digest(), any::<[u8; 16]>(), ".{0,40}", ".{0,40}", time(), 0..1_u64 << 62);
    (head, refs, vec(segment_ref(), 0..5), gc(), option::weighted(0.2, forgotten())).prop_map(
        |((sequence, previous, nonce, writer, tool, time, index_generation), refs, mut segments, gc, forgotten)| {
            let collects = gc.is_some() || forgotten.is_some();
            let gc = gc.map(|change| match change {
                GcChange::Boundary(boundary) => {
                    GcChange::Boundary(Boundary { generation: index_generation + 1, ..boundary })
                }
                swept @ GcChange::Swept(_) => swept,
            });
            let generation = index_generation + u64::from(matches!(gc, Some(GcChange::Boundary(_))));
            segments.iter_mut().for_each(|segment| segment.generation = generation);
            if matches!(gc, Some(GcChange::Swept(_))) {
                segments.clear();
            }
            LogRecord {
                repository: REPOSITORY,
                sequence,
                previous: (sequence > 1).then_some(previous),
                nonce: Nonce::from_bytes(nonce),
                writer,
                tool,
                time,
                index_generation,
                refs: if collects { Vec::new() } else { refs },
                segments,
                gc,
                forgotten,
            }
        },
    )
}

/// A boundary, its generation still to be filled in, or a sweep.
fn gc() -> impl Strategy<Value = Option<GcChange>> {
    let dropped = btree_set(any::<[u8; 16]>().prop_map(SegmentId::from_bytes), 0..5);
    let boundary = (pack_ids(), dropped).prop_map(|(packs, dropped)| {
        let (condemned, dropped) = (packs.into_iter().collect(), dropped.into_iter().collect());
        GcChange::Boundary(Boundary { generation: 0, condemned, dropped })
    });
    let swept = btree_set(any::<u64>(), 1..4).prop_map(|swept| GcChange::Swept(swept.into_iter().collect()));
    option::weighted(0.4, prop_oneof![boundary, swept])
}

fn forgotten() -> impl Strategy<Value = Vec<Forgotten>> {
    btree_map(ref_name(), btree_set(sequence(), 1..5), 1..4).prop_map(|forgotten| {
        let one = |(name, versions): (_, BTreeSet<u64>)| Forgotten { name, versions: versions.into_iter().collect() };
        forgotten.into_iter().map(one).collect()
    })
}

fn pack_ids() -> impl Strategy<Value = BTreeSet<PackId>> {
    btree_set(any::<[u8; 16]>().prop_map(PackId::from_bytes), 0..5)
}

/// Any state that a log of enough records can come to.
pub(crate) fn state() -> impl Strategy<Value = LogState> {
    let version = (1..1_000_u64, 1..1_000_u64, snapshot_id(), option::of(snapshot_id()), time(), ".{0,20}");
    let versions = vec((version, option::of(chunk_id()), option::of(1..1_000_u64)), 0..6);
    let refs = btree_map(ref_name(), (versions, 1..1_000_u64), 0..6).prop_map(|refs| {
        let ref_state = |(name, (versions, sequence)): (RefName, (Vec<_>, u64))| {
            let mut last = (0, 0, 0);
            let version =
                |((skip, log_skip, snapshot, parent, time, writer), envelope, step_skip): (_, _, Option<_>)| {
                    last = (last.0 + skip, last.1 + log_skip, last.2 + step_skip.unwrap_or(0));
                    let (sequence, log_sequence, step) = last;
                    let step = step_skip.map(|_| step);
                    RefVersion { sequence, snapshot, parent, log_sequence, time, writer, envelope, step }
                };
            let versions: Vec<RefVersion> = versions.into_iter().map(version).collect();
            let sequence = versions.last().map_or(sequence, |version| version.sequence);
            RefState { name, sequence, versions }
        };
        refs.into_iter().map(ref_state).collect::<Vec<_>>()
    });
    let group = (time(), pack_ids(), vec(segment_ref(), 0..3))
        .prop_filter("not empty", |(_, packs, segments)| !packs.is_empty() || !segments.is_empty());
    let condemned = btree_map(0..1_u64 << 62, group, 0..4).prop_map(|groups| {
        let group = |(generation, (since, packs, segments)): (_, (_, BTreeSet<PackId>, _))| {
            let packs = packs.into_iter().collect();
            Condemned { generation, since, packs, segments }
        };
        groups.into_iter().map(group).collect::<Vec<_>>()
    });
    (sequence(), digest(), 0..=1_u64 << 62, refs, vec(segment_ref(), 0..6), condemned).prop_map(
        |(sequence, last, index_generation, refs, segments, condemned)| {
            let newest = condemned.iter().map(|group| group.generation);
            let newest = newest.chain(segments.iter().map(|segment: &SegmentRef| segment.generation)).max();
            LogState {
                repository: REPOSITORY,
                sequence: sequence.max(6_000),
                last: Some(last),
                index_generation: index_generation.max(newest.unwrap_or(0)),
                refs,
                segments,
                condemned,
            }
        },
    )
}

pub(crate) fn budget() -> impl Strategy<Value = BudgetRecord> {
    let set = (tenant(), option::of(".{0,20}"), option::of(amount()))
        .prop_map(|(tenant, job, limit)| BudgetChange::Set(BudgetSet { tenant, job, limit }));
    let settle = (booking_id(), any::<u64>(), option::of(money()))
        .prop_map(|(id, bytes, cost)| BudgetChange::Settle(BudgetSettlement { id, bytes, cost }));
    let changes = vec(prop_oneof![set, booking().prop_map(BudgetChange::Book), settle], 1..8);
    (sequence(), digest(), any::<[u8; 16]>(), ".{0,40}", ".{0,40}", time(), changes).prop_map(
        |(sequence, previous, nonce, writer, tool, time, changes)| BudgetRecord {
            repository: REPOSITORY,
            sequence,
            previous: (sequence > 1).then_some(previous),
            nonce: Nonce::from_bytes(nonce),
            writer,
            tool,
            time,
            changes,
        },
    )
}

pub(crate) fn budget_state() -> impl Strategy<Value = BudgetState> {
    let priced = btree_map("[A-Z]{3}", (any::<u64>(), money()), 0..3).prop_map(|priced| {
        let priced = priced.into_iter();
        let priced =
            priced.map(|(currency, (bytes, cost))| BudgetPriced { bytes, cost: BudgetMoney { currency, ..cost } });
        priced.collect::<Vec<_>>()
    });
    let months = btree_map(month(), (any::<u64>(), priced), 0..4).prop_map(|months| {
        let months = months.into_iter().map(|(month, (bytes, priced))| BudgetMonth { month, bytes, priced });
        months.collect::<Vec<_>>()
    });
    let accounts = btree_map((tenant(), option::of(".{0,20}")), (option::of(amount()), months), 0..5).prop_map(|all| {
        let account = |((tenant, job), (limit, months))| BudgetAccount { tenant, job, limit, months };
        all.into_iter().map(account).collect::<Vec<_>>()
    });
    let open = btree_map(booking_id(), (booking(), 1..=2_u8), 0..6).prop_map(|open| {
        let open = open
            .into_iter()
            .map(|(id, (booking, accounts))| BudgetOpen { booking: BudgetBooking { id, ..booking }, accounts });
        open.collect::<Vec<_>>()
    });
    (sequence(), digest(), accounts, open).prop_map(|(sequence, last, accounts, open)| BudgetState {
        repository: REPOSITORY,
        sequence,
        last: Some(last),
        accounts,
        open,
    })
}

pub(crate) fn ledger() -> impl Strategy<Value = LedgerRecord> {
    let key = (1..=31_u8, proptest::array::uniform7("[a-z:é]{0,8}"));
    let rows = btree_map(key, proptest::array::uniform6(any::<u64>()), 1..20).prop_map(|rows| {
        let row = |((day, names), counters): ((u8, [String; 7]), [u64; 6])| {
            let [tenant, job, dataset, class, tier, from, to] = names;
            let [payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes] = counters;
            let usage = LedgerUsage { payload_bytes, sent_bytes, wire_bytes, retried_bytes, requests, avoided_bytes };
            LedgerRow { day, tenant, job, dataset, class, tier, from, to, usage }
        };
        rows.into_iter().map(row).collect::<Vec<_>>()
    });
    (sequence(), any::<[u8; 16]>(), time(), ".{0,40}", rows).prop_map(|(sequence, nonce, time, tool, rows)| {
        LedgerRecord {
            repository: REPOSITORY,
            node: NODE,
            month: MONTH,
            sequence,
            nonce: Nonce::from_bytes(nonce),
            time,
            tool,
            rows,
        }
    })
}

fn tenant() -> impl Strategy<Value = String> {
    "[^/]{1,20}"
}

fn booking_id() -> impl Strategy<Value = BookingId> {
    any::<[u8; 16]>().prop_map(BookingId::from_bytes)
}

fn booking() -> impl Strategy<Value = BudgetBooking> {
    (booking_id(), ".{0,20}", tenant(), ".{0,20}", month(), any::<u64>(), option::of(money())).prop_map(
        |(id, holder, tenant, job, month, bytes, cost)| BudgetBooking { id, holder, tenant, job, month, bytes, cost },
    )
}

fn amount() -> impl Strategy<Value = BudgetAmount> {
    prop_oneof![any::<u64>().prop_map(BudgetAmount::Bytes), money().prop_map(BudgetAmount::Money)]
}

fn money() -> impl Strategy<Value = BudgetMoney> {
    ("[A-Z]{3}", 0..=79_228_162_514_u64, 0..1_000_000_000_000_000_000_u64)
        .prop_map(|(currency, whole, part)| BudgetMoney { currency, whole, part })
}

fn month() -> impl Strategy<Value = u32> {
    (0..=9999_u32, 1..=12_u32).prop_map(|(year, month)| year * 100 + month)
}

/// A ref name of up to four parts.
pub(crate) fn ref_name() -> impl Strategy<Value = RefName> {
    "[a-z0-9_-][a-z0-9._-]{0,9}(/[a-z0-9_-][a-z0-9._-]{0,9}){0,3}".prop_map(|name| name.parse().expect("a ref name"))
}

fn entry_name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..30).prop_filter("a name", |name| check_entry_name(name).is_ok())
}

fn kind() -> impl Strategy<Value = EntryKind> {
    let inline = vec(any::<u8>(), 0..200).prop_map(Content::Inline);
    let chunks = vec(chunk_ref(), 0..50).prop_map(Content::Chunks);
    let lists = (1..=4_u8, vec(list_ref(), 1..10)).prop_map(|(height, lists)| Content::Lists(height, lists));
    let file = (prop_oneof![inline, chunks, lists], any::<[u8; 32]>(), any::<Option<u64>>(), 0..5_u64).prop_map(
        |(content, digest, hard_link, holes)| {
            let bytes = content.len().expect("small sums");
            let holes: Vec<Hole> =
                (0..holes).map(|n| Hole { offset: (3 * n) * HOLE_BLOCK, len: 2 * HOLE_BLOCK }).collect();
            let reach = holes.last().map_or(0, |hole| hole.offset + hole.len);
            let size = bytes + holes.iter().map(|hole| hole.len).sum::<u64>();
            // Holes lie inside the file: drop them where the content is too short to reach around them.
            let (size, holes) = if size >= reach && !holes.is_empty() { (size, Some(holes)) } else { (bytes, None) };
            EntryKind::File(FileEntry { size, digest: FileDigest::from_bytes(digest), content, holes, hard_link })
        },
    );
    let link = vec(1..=255_u8, 1..100).prop_map(EntryKind::Symlink);
    prop_oneof![4 => file, 1 => directory().prop_map(EntryKind::Dir), 1 => link]
}

fn directory() -> impl Strategy<Value = Directory> {
    (chunk_id(), totals()).prop_map(|(node, totals)| Directory { node, totals })
}

/// Small enough that sums of some fit.
fn totals() -> impl Strategy<Value = Totals> {
    (0..3_u64, 0..1_u64 << 40, 0..3_u64, 0..1_u64 << 50).prop_map(|(files, dirs, links, bytes)| Totals {
        files,
        dirs,
        links,
        bytes,
    })
}

fn chunk_ref() -> impl Strategy<Value = ChunkRef> {
    (chunk_id(), 1..=16_u32 << 20).prop_map(|(id, len)| ChunkRef { id, len })
}

fn list_ref() -> impl Strategy<Value = ListRef> {
    (chunk_id(), 1..1_u64 << 50).prop_map(|(id, bytes)| ListRef { id, bytes })
}

fn segment_ref() -> impl Strategy<Value = SegmentRef> {
    (any::<[u8; 16]>(), 0..1_u64 << 62, digest(), any::<u64>()).prop_map(|(id, generation, digest, len)| SegmentRef {
        id: SegmentId::from_bytes(id),
        generation,
        digest,
        len,
    })
}

/// Numbers of one, two and many bytes.
fn sequence() -> impl Strategy<Value = u64> {
    prop_oneof![1..30_u64, 1..=1_u64 << 62]
}

/// Steps start from 0.
fn step_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..30_u64, 0..=1_u64 << 62]
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn chunk_id() -> impl Strategy<Value = ChunkId> {
    any::<[u8; 32]>().prop_map(ChunkId::from_bytes)
}

fn snapshot_id() -> impl Strategy<Value = SnapshotId> {
    any::<[u8; 32]>().prop_map(SnapshotId::from_bytes)
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

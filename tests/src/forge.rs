//! A writer of repositories that honest programs would not write: right checksums around wrong content.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_format::{
    ChunkId, ChunkerParams, Cipher, Codec, Digest, Directory, Entry, EntryKind, FRAME_HEADER_LEN, FileDigest,
    FileEntry, FrameHeader, FrameKind, IdScheme, LogRecord, Nonce, PackFooter, PackId, RefChange, RepositoryConfig,
    RepositoryId, Row, Segment, SegmentId, SegmentPack, SegmentRef, Snapshot, SnapshotId, StoredId, Timestamp, Totals,
    TreeNode,
};

/// The time of everything forged.
const TIME: Timestamp = Timestamp { seconds: 1_000_000_000, nanos: 0 };
const CHUNKER: ChunkerParams =
    ChunkerParams { min_bytes: 64 << 10, avg_bytes: 256 << 10, max_bytes: 1 << 20, normalization: 1 };

/// Collects frames and writes them as one repository with one ref, `forged`.
#[derive(Debug)]
pub struct Forge {
    repository: RepositoryId,
    frames: Vec<(FrameHeader, Vec<u8>)>,
}

impl Forge {
    /// An empty forge; different numbers give repositories of different names.
    pub fn new(number: u8) -> Self {
        Self { repository: RepositoryId::from_bytes([number; 16]), frames: Vec::new() }
    }

    /// Adds a raw frame of any bytes.
    pub fn raw(&mut self, kind: FrameKind, plain: &[u8]) -> ChunkId {
        let id = ChunkId::of(plain);
        let len = u32::try_from(plain.len()).expect("forged chunks are small");
        let stored_id = StoredId::from_bytes(*id.as_bytes());
        let header = FrameHeader {
            kind,
            codec: Codec::Raw,
            depth: 0,
            id,
            base: None,
            stored_id,
            plain_len: len,
            stored_len: len,
        };
        self.frame(header, plain.to_vec());
        id
    }

    /// Adds a frame whose payload is what it is and whose header says what it says.
    pub fn frame(&mut self, header: FrameHeader, payload: Vec<u8>) {
        if self.frames.iter().all(|(known, _)| known.id != header.id) {
            self.frames.push((header, payload));
        }
    }

    /// Adds a zstd frame with this id and plain length, whatever the payload decodes to.
    pub fn zstd(&mut self, id: ChunkId, plain_len: u32, payload: Vec<u8>) {
        let stored_len = u32::try_from(payload.len()).expect("forged payloads are small");
        let stored_id = StoredId::of(&payload);
        let (kind, codec) = (FrameKind::Data, Codec::Zstd);
        self.frame(FrameHeader { kind, codec, depth: 0, id, base: None, stored_id, plain_len, stored_len }, payload);
    }

    /// Adds a folder of these entries, in this order.
    pub fn folder(&mut self, entries: Vec<Entry>) -> Directory {
        let node = TreeNode::Leaf(entries);
        let totals = node.totals().unwrap_or_default();
        Directory { node: self.raw(FrameKind::Tree, &node.encode()), totals }
    }

    /// Writes the repository with `root` as the only version of `forged`.
    pub fn write(mut self, repo: &Path, root: Directory) -> SnapshotId {
        let labels = std::collections::BTreeMap::new();
        let snapshot = Snapshot { mode: 0o755, mtime: TIME, root, chunker: CHUNKER, labels };
        self.raw(FrameKind::Snapshot, &snapshot.encode());
        let (pack, len, rows) = self.write_pack(repo);
        let packs = vec![SegmentPack { id: pack, len }];
        let mut segment = Segment { generation: 0, packs, rows: rows.into_iter().map(|row| (row, 0)).collect() };
        let (id, bytes) = (SegmentId::from_bytes([3; 16]), segment.encode());
        let name = SegmentRef { id, generation: 0, digest: Digest::of(&bytes), len: bytes.len() as u64 };
        put(&repo.join(format!("index/{:020}/{id}.seg", 0)), &bytes);
        let change = RefChange {
            name: "forged".parse().expect("a ref name"),
            sequence: 1,
            old: None,
            new: Some(snapshot.id()),
            parent: None,
            envelope: None,
            step: None,
        };
        let record = LogRecord {
            repository: self.repository,
            sequence: 1,
            previous: None,
            nonce: Nonce::from_bytes([4; 16]),
            writer: "forge".to_owned(),
            tool: "forge".to_owned(),
            time: TIME,
            index_generation: 0,
            refs: vec![change],
            segments: vec![name],
        };
        put(&repo.join(format!("log/commit/{:020}", 1)), &record.encode());
        put(&repo.join("forebay.cbor"), &self.config().encode());
        snapshot.id()
    }

    fn config(&self) -> RepositoryConfig {
        RepositoryConfig {
            format: RepositoryConfig::FORMAT,
            id: self.repository,
            chunker: CHUNKER,
            id_scheme: IdScheme::Blake3,
            cipher: Cipher::None,
            min_writer: 0,
            created: TIME,
        }
    }

    fn write_pack(&self, repo: &Path) -> (PackId, u64, Vec<Row>) {
        let mut bytes = Vec::new();
        let mut rows = Vec::new();
        for (header, payload) in &self.frames {
            // Large raw payloads are aligned, as packs have them.
            if header.codec == Codec::Raw && header.plain_len >= 64 << 10 {
                bytes.resize((bytes.len() + FRAME_HEADER_LEN).next_multiple_of(4096) - FRAME_HEADER_LEN, 0);
            }
            let offset = u32::try_from(bytes.len()).expect("forged packs are small");
            rows.push(Row { offset, header: *header });
            bytes.extend_from_slice(&header.encode());
            bytes.extend_from_slice(payload);
        }
        let pack = PackId::from_bytes([2; 16]);
        let mut footer = PackFooter { pack, rows: rows.clone() };
        bytes.extend_from_slice(&footer.encode());
        let hex = pack.to_hex();
        put(&repo.join(format!("pack/{}/{hex}.pack", &hex[..2])), &bytes);
        (pack, bytes.len() as u64, rows)
    }
}

/// A file entry of these bytes, inline.
pub fn inline_file(name: &[u8], bytes: &[u8]) -> Entry {
    let content = forebay_format::Content::Inline(bytes.to_vec());
    let digest = FileDigest::of(bytes);
    file_entry(name, FileEntry { size: bytes.len() as u64, digest, content, holes: None, hard_link: None })
}

/// A file entry of any content.
pub fn file_entry(name: &[u8], file: FileEntry) -> Entry {
    Entry { name: name.to_vec(), mode: 0o644, mtime: TIME, kind: EntryKind::File(file) }
}

/// A symbolic link.
pub fn link_entry(name: &[u8], target: &[u8]) -> Entry {
    Entry { name: name.to_vec(), mode: 0o777, mtime: TIME, kind: EntryKind::Symlink(target.to_vec()) }
}

/// A folder entry.
pub fn dir_entry(name: &[u8], directory: Directory) -> Entry {
    Entry { name: name.to_vec(), mode: 0o755, mtime: TIME, kind: EntryKind::Dir(directory) }
}

/// The same folder with other totals.
pub fn with_totals(directory: Directory, totals: Totals) -> Directory {
    Directory { totals, ..directory }
}

fn put(path: &PathBuf, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("objects lie in folders")).expect("a folder can be made");
    fs::write(path, bytes).expect("an object can be written");
}

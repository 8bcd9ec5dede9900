//! A writer of repositories that honest programs would not write: right checksums around wrong content.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use forebay_format::{
    ChunkId, ChunkerParams, Cipher, Codec, Digest, Directory, Entry, EntryKind, FRAME_HEADER_LEN, FileDigest,
    FileEntry, FrameHeader, FrameKind, IdScheme, LogRecord, Nonce, PackFooter, PackId, RefChange, RepositoryConfig,
    RepositoryId, Row, Segment, SegmentId, SegmentPack, SegmentRef, Snapshot, SnapshotId, StoredId, Timestamp, Totals,
    TreeNode,
};
use serde_json::json;

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

    /// The repository's name.
    pub fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// Writes the repository with `root` as the only version of `forged`.
    pub fn write(self, repo: &Path, root: Directory) -> SnapshotId {
        self.write_as(repo, root, Placed { name: "forged", step: None, envelope: None })
    }

    /// Writes the repository with `root` as its only version.
    pub fn write_as(mut self, repo: &Path, root: Directory, placed: Placed<'_>) -> SnapshotId {
        let snapshot = snapshot_of(root);
        self.raw(FrameKind::Snapshot, &snapshot.encode());
        let envelope = placed.envelope.map(|bytes| self.raw(FrameKind::Envelope, bytes));
        let (pack, len, rows) = self.write_pack(repo);
        let packs = vec![SegmentPack { id: pack, len }];
        let mut segment = Segment { generation: 0, packs, rows: rows.into_iter().map(|row| (row, 0)).collect() };
        let (id, bytes) = (SegmentId::from_bytes([3; 16]), segment.encode());
        let name = SegmentRef { id, generation: 0, digest: Digest::of(&bytes), len: bytes.len() as u64 };
        put(&repo.join(format!("index/{:020}/{id}.seg", 0)), &bytes);
        let change = RefChange {
            name: placed.name.parse().expect("a ref name"),
            sequence: 1,
            old: None,
            new: Some(snapshot.id()),
            parent: None,
            envelope,
            step: placed.step,
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
            gc: None,
            forgotten: None,
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

/// How the log speaks of a forged version.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'p> {
    /// The ref.
    pub name: &'p str,
    /// The step it is the checkpoint of.
    pub step: Option<u64>,
    /// Its signature.
    pub envelope: Option<&'p [u8]>,
}

/// The snapshot that [`Forge::write_as`] makes of a folder.
pub fn snapshot_of(root: Directory) -> Snapshot {
    Snapshot { mode: 0o755, mtime: TIME, root, chunker: CHUNKER, labels: std::collections::BTreeMap::new() }
}

/// What a signer says of a checkpoint, written with code of its own.
#[derive(Debug, Clone)]
pub struct SignedStatement {
    /// The repository.
    pub repository: RepositoryId,
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// The version.
    pub snapshot: SnapshotId,
    /// Files and bytes in it.
    pub totals: Totals,
}

impl SignedStatement {
    /// The envelope that this key makes of it, for the first version of its ref. `cut` bytes of the signature are left out.
    pub fn envelope(&self, secret: &[u8; 32], cut: usize) -> Vec<u8> {
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "name": self.run, "digest": { "blake3": self.snapshot.to_hex() } }],
            "predicateType": "urn:forebay:checkpoint:v0",
            "predicate": {
                "repository": self.repository.to_hex(), "run": self.run, "step": self.step, "sequence": 1,
                "previous": null, "files": self.totals.files, "bytes": self.totals.bytes,
            },
        })
        .to_string();
        let kind = "application/vnd.in-toto+json";
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let key = SigningKey::from_bytes(secret);
        let signature = key.sign(message.as_bytes()).to_bytes();
        let envelope = json!({
            "payloadType": kind,
            "payload": STANDARD.encode(payload),
            "signatures": [{
                "keyid": hex::encode(key.verifying_key().as_bytes()),
                "sig": STANDARD.encode(&signature[..signature.len() - cut]),
            }],
        });
        envelope.to_string().into_bytes()
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

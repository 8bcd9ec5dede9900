//! Bounds that every decoder checks before it allocates.

/// Upper bounds on what a decoder accepts. One struct, so that a node that serves strangers can lower all of them in one
/// place. The defaults fit every object this program writes, with room for a factor of two or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Plain bytes of one chunk. The largest chunk profile cuts at 2 MiB; 16 MiB leaves room for tensor chunks.
    pub chunk_bytes: u32,
    /// Bytes of one pack, 64 MiB of frames and its footer.
    pub pack_bytes: u64,
    /// Bytes of one pack footer: 112 bytes a row at the worst.
    pub footer_bytes: u64,
    /// Bytes of one index segment.
    pub segment_bytes: u64,
    /// Plain bytes of one manifest node or chunk list.
    pub node_bytes: u32,
    /// Bytes of one log record.
    pub log_record_bytes: u64,
    /// Bytes of one log state: all refs with their history.
    pub log_state_bytes: u64,
    /// Packs that one collection of garbage condemns: 16 TiB of them.
    pub condemned_packs: u32,
    /// Segments that one collection of garbage drops.
    pub dropped_segments: u32,
    /// Collections of garbage whose packs wait to be deleted.
    pub condemned_generations: u32,
    /// Versions that one record forgets.
    pub forgotten_versions: u32,
    /// Bytes of the repository configuration and of one snapshot.
    pub small_object_bytes: u64,
    /// Bytes of one signature envelope, its payload in base64 included.
    pub envelope_bytes: u64,
    /// Folders inside folders.
    pub tree_depth: u32,
}

impl Limits {
    /// The limits this program itself works with.
    pub const DEFAULT: Self = Self {
        chunk_bytes: 16 << 20,
        pack_bytes: 256 << 20,
        footer_bytes: 64 << 20,
        segment_bytes: 1 << 30,
        node_bytes: 4 << 20,
        log_record_bytes: 16 << 20,
        log_state_bytes: 256 << 20,
        condemned_packs: 1 << 18,
        dropped_segments: 1 << 17,
        condemned_generations: 1 << 10,
        forgotten_versions: 1 << 18,
        small_object_bytes: 1 << 20,
        envelope_bytes: 64 << 10,
        tree_depth: 1024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

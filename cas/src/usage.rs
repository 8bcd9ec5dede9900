//! How much refs take, and how much of it they share.

use std::collections::BTreeMap;

use forebay_format::{ChunkId, Directory, Entry, EntryKind, FrameKind, RefName, TreeNode};

use crate::repository::{ChunkReader, ReadError, Repository};
use crate::tree::{Visitor, for_each_chunk, list_ids, walk};

/// What one ref takes, all its versions together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUsage {
    /// The ref.
    pub name: RefName,
    /// Versions it has.
    pub versions: u64,
    /// Files of the newest version.
    pub files: u64,
    /// Bytes of the newest version's files.
    pub plain_bytes: u64,
    /// Bytes of all chunks of all versions as stored, each counted once.
    pub stored_bytes: u64,
    /// The part of them that other refs use too.
    pub shared_bytes: u64,
}

/// All refs, and all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Each ref, by name.
    pub refs: Vec<RefUsage>,
    /// Bytes of all chunks of all refs as stored, each counted once.
    pub stored_bytes: u64,
}

/// Adds up what the refs take. Keeps 40 bytes of memory for each chunk.
///
/// # Errors
/// [`ReadError`] if a manifest is missing or damaged.
pub fn usage(repository: &mut Repository) -> Result<Usage, ReadError> {
    let reader = repository.reader()?;
    let mut used: BTreeMap<ChunkId, Use> = BTreeMap::new();
    let mut refs = Vec::new();
    let mut chunks_of = Vec::new();
    for state in repository.state().refs.iter().filter(|state| !state.versions.is_empty()) {
        let mut chunks: BTreeMap<ChunkId, ()> = BTreeMap::new();
        let mut newest = forebay_format::Totals::default();
        for version in &state.versions {
            let snapshot = reader.snapshot(version.snapshot)?;
            newest = snapshot.root.totals;
            chunks.insert(version.snapshot.chunk_id(), ());
            let mut collect = Collect { reader: &reader, chunks: &mut chunks };
            collect.nodes(&snapshot.root)?;
            walk(&reader, &snapshot.root, &mut collect)?;
        }
        for id in chunks.keys() {
            let known = used.get(id).map(|one| one.bytes);
            let bytes = match known {
                Some(bytes) => bytes,
                None => stored_len(&reader, *id)?,
            };
            used.entry(*id).or_insert(Use { bytes, refs: 0 }).refs += 1;
        }
        refs.push(RefUsage {
            name: state.name.clone(),
            versions: state.versions.len() as u64,
            files: newest.files,
            plain_bytes: newest.bytes,
            stored_bytes: 0,
            shared_bytes: 0,
        });
        chunks_of.push(chunks);
    }
    for (usage, chunks) in refs.iter_mut().zip(&chunks_of) {
        for one in chunks.keys().filter_map(|id| used.get(id)) {
            usage.stored_bytes += one.bytes;
            usage.shared_bytes += if one.refs > 1 { one.bytes } else { 0 };
        }
    }
    Ok(Usage { refs, stored_bytes: used.values().map(|one| one.bytes).sum() })
}

#[derive(Debug)]
struct Use {
    bytes: u64,
    refs: u32,
}

fn stored_len(reader: &ChunkReader, id: ChunkId) -> Result<u64, ReadError> {
    let places = reader.index().locate(id)?;
    let place = places.first().ok_or(ReadError::Missing { id, kind: FrameKind::Data })?;
    Ok(place.row.header.frame_len())
}

struct Collect<'c> {
    reader: &'c ChunkReader,
    chunks: &'c mut BTreeMap<ChunkId, ()>,
}

impl Collect<'_> {
    /// The node of a folder and those of its parts.
    fn nodes(&mut self, directory: &Directory) -> Result<(), ReadError> {
        let mut todo = vec![(directory.node, directory.totals)];
        while let Some((node, totals)) = todo.pop() {
            if self.chunks.insert(node, ()).is_none()
                && let TreeNode::Inner(parts) = self.reader.tree(node, totals)?
            {
                todo.extend(parts.into_iter().map(|part| (part.node, part.totals)));
            }
        }
        Ok(())
    }
}

impl Visitor for Collect<'_> {
    type Error = ReadError;

    fn enter(&mut self, _: &[u8], _: &Entry, directory: &Directory) -> Result<bool, ReadError> {
        // A folder of an earlier version or another place has been added up with everything below it.
        let is_new = !self.chunks.contains_key(&directory.node);
        self.nodes(directory)?;
        Ok(is_new)
    }

    fn visit(&mut self, _: &[u8], entry: &Entry) -> Result<(), ReadError> {
        let EntryKind::File(file) = &entry.kind else { return Ok(()) };
        for id in list_ids(self.reader, file)? {
            self.chunks.insert(id, ());
        }
        let chunks = &mut *self.chunks;
        for_each_chunk(self.reader, file, |chunk| {
            chunks.insert(chunk.id, ());
            Ok(())
        })
    }
}

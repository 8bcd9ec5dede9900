//! Collects runs of frames into packs and uploads them while the next ones fill.

use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{
    Digest, LogState, PackFooter, PackId, RAW_ALIGNMENT, Row, Segment, SegmentId, SegmentPack, SegmentRef,
};
use object_store::PutPayload;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::class::{Classify, ErrorClass};
use crate::index::{IndexError, LocalIndex, PendingPack};
use crate::numbers::{index, length};
use crate::origin::{Origin, OriginError};
use crate::rng::Random;
use crate::run::FrameRun;

/// A pack is closed before it grows over this.
pub const PACK_BYTES: u64 = 64 << 20;
/// Packs on their way at once, beside the one that fills: 192 MiB of the 512 MiB bound.
const UPLOADS_MAX: usize = 2;
/// Rows after which an index segment is written, so that a push of any size keeps a bounded number in memory.
const SEGMENT_ROWS: usize = 200_000;

/// Packs could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The origin failed.
    #[error("a pack or an index segment cannot be stored")]
    Origin(#[from] OriginError),
    /// The local index failed.
    #[error("the stored packs cannot be remembered")]
    Index(#[from] IndexError),
    /// The upload's thread died.
    #[error("an upload died")]
    Died,
}

impl Classify for PackError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Origin(source) => source.class(),
            Self::Index(source) => source.class(),
            Self::Died => ErrorClass::Failed,
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Index(source) => source.damaged_index(),
            _ => None,
        }
    }
}

/// Object name of a pack: 256 folders, so that no folder of a local repository grows long.
#[must_use]
pub fn pack_path(id: PackId) -> String {
    let hex = id.to_hex();
    format!("pack/{}/{hex}.pack", &hex[..2])
}

/// Object name of an index segment.
#[must_use]
pub fn segment_path(generation: u64, id: SegmentId) -> String {
    format!("index/{generation:020}/{id}.seg")
}

/// Data and manifests fill packs of their own, so that reading a manifest stays among manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackKind {
    /// Bytes of files.
    Data,
    /// Trees, lists, snapshots, envelopes.
    Manifest,
}

/// What went into the origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The packs those segments list.
    pub packs: Vec<PackId>,
    /// Segments that list every pack of this push; a log record makes them count.
    pub segments: Vec<SegmentRef>,
    /// Bytes of packs and segments.
    pub bytes: u64,
}

/// A pack that fills.
#[derive(Debug, Default)]
struct OpenPack {
    parts: Vec<Bytes>,
    len: u64,
    rows: Vec<Row>,
}

impl OpenPack {
    fn append(&mut self, run: FrameRun) {
        static ZEROS: [u8; RAW_ALIGNMENT as usize] = [0; RAW_ALIGNMENT as usize];
        let start = self.len.next_multiple_of(RAW_ALIGNMENT.into());
        if start > self.len {
            self.parts.push(Bytes::from_static(&ZEROS[..index(start - self.len)]));
        }
        self.len = start + length(run.bytes.len());
        let base = u32::try_from(start).expect("packs are far below 4 GiB");
        self.rows.extend(run.rows.into_iter().map(|row| Row { offset: base + row.offset, ..row }));
        self.parts.push(run.bytes.into());
    }
}

/// Fills packs and hands full ones to uploads. Each pack is durable before its rows are remembered.
pub struct Packer<'p> {
    origin: &'p Arc<Origin>,
    index: &'p LocalIndex,
    random: &'p Random,
    runtime: Handle,
    generation: u64,
    durable: &'p (dyn Fn(&PendingPack) + Sync),
    open: [OpenPack; 2],
    uploads: JoinSet<Result<PendingPack, OriginError>>,
    packs: Vec<PendingPack>,
    pending_rows: usize,
    stored: Stored,
}

impl std::fmt::Debug for Packer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("open", &self.open[0].len).field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl<'p> Packer<'p> {
    /// A packer whose segments belong to an index generation. `durable` hears of each pack that the index knows.
    #[must_use]
    pub fn new(
        origin: &'p Arc<Origin>,
        index: &'p LocalIndex,
        random: &'p Random,
        runtime: Handle,
        generation: u64,
        durable: &'p (dyn Fn(&PendingPack) + Sync),
    ) -> Self {
        Self {
            origin,
            index,
            random,
            runtime,
            generation,
            durable,
            open: Default::default(),
            uploads: JoinSet::new(),
            packs: Vec::new(),
            pending_rows: 0,
            stored: Stored::default(),
        }
    }

    /// Takes over the packs that an interrupted push left behind, as far as they are still there with their length, are
    /// not condemned, and the bases of their patches are there too: they will be listed by this push's segments. All others
    /// are forgotten, with their chunks. Returns how many are taken over.
    ///
    /// # Errors
    /// [`PackError`] if index or origin fail.
    pub fn adopt(&mut self, state: &LogState) -> Result<usize, PackError> {
        let mut there = Vec::new();
        for id in self.index.pending_ids()? {
            let Some(pack) = self.index.pending(id)? else { continue };
            let is_whole = self.runtime.block_on(self.origin.len(&pack_path(id)))? == Some(pack.len);
            if is_whole && !state.is_condemned(id) {
                there.push(id);
            } else {
                self.index.forget_pending(&pack)?;
            }
        }
        let mut adopted = 0;
        for id in there {
            let Some(pack) = self.index.pending(id)? else { continue };
            if self.has_bases(&pack)? {
                adopted += 1;
                self.list(pack)?;
            } else {
                self.index.forget_pending(&pack)?;
            }
        }
        Ok(adopted)
    }

    /// Whether every patch in a pack has its base in a shorter chain.
    fn has_bases(&self, pack: &PendingPack) -> Result<bool, PackError> {
        for header in pack.rows.iter().map(|row| &row.header) {
            let Some(base) = header.base else { continue };
            if !self.index.locate(base)?.iter().any(|place| place.row.header.depth < header.depth) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds a run to the pack of its kind; waits while too many packs are on their way.
    ///
    /// # Errors
    /// [`PackError`] of this or an earlier pack.
    pub fn add(&mut self, kind: PackKind, run: FrameRun) -> Result<(), PackError> {
        let open = &self.open[kind as usize];
        let end = open.len.next_multiple_of(RAW_ALIGNMENT.into()) + length(run.bytes.len());
        if open.len > 0 && end > PACK_BYTES {
            self.close(kind)?;
        }
        self.open[kind as usize].append(run);
        Ok(())
    }

    /// Closes the packs that fill, waits for all packs, writes the last segment.
    ///
    /// # Errors
    /// [`PackError`]; what is durable by then is remembered for the next push.
    pub fn finish(mut self) -> Result<Stored, PackError> {
        self.flush()?;
        self.write_segment()?;
        Ok(self.stored)
    }

    /// Closes the packs that fill and waits until every pack is durable and remembered, so that an interrupted push
    /// loses nothing it has sent.
    ///
    /// # Errors
    /// [`PackError`] of the first pack that fails.
    pub fn flush(&mut self) -> Result<(), PackError> {
        self.close(PackKind::Data)?;
        self.close(PackKind::Manifest)?;
        while !self.uploads.is_empty() {
            self.wait_for_one()?;
        }
        Ok(())
    }

    /// Seals a pack that fills and starts its upload.
    fn close(&mut self, kind: PackKind) -> Result<(), PackError> {
        let OpenPack { mut parts, len, rows } = std::mem::take(&mut self.open[kind as usize]);
        if rows.is_empty() {
            return Ok(());
        }
        while self.uploads.len() >= UPLOADS_MAX {
            self.wait_for_one()?;
        }
        let id = PackId::from_bytes(self.random.bytes());
        let mut footer = PackFooter { pack: id, rows };
        let end = footer.encode();
        let len = len + length(end.len());
        parts.push(end.into());
        let origin = Arc::clone(self.origin);
        let upload = async move {
            origin.put(&pack_path(id), PutPayload::from_iter(parts)).await?;
            Ok(PendingPack { id, len, rows: footer.rows })
        };
        self.uploads.spawn_on(upload, &self.runtime);
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<(), PackError> {
        let Some(done) = self.runtime.block_on(self.uploads.join_next()) else { return Ok(()) };
        let pack = done.map_err(|_panic| PackError::Died)??;
        self.index.add_pending(&pack)?;
        (self.durable)(&pack);
        self.stored.bytes += pack.len;
        self.list(pack)
    }

    /// Puts a durable pack on the list for the next segment.
    fn list(&mut self, pack: PendingPack) -> Result<(), PackError> {
        self.pending_rows += pack.rows.len();
        self.packs.push(pack);
        if self.pending_rows >= SEGMENT_ROWS { self.write_segment() } else { Ok(()) }
    }

    fn write_segment(&mut self) -> Result<(), PackError> {
        if self.packs.is_empty() {
            return Ok(());
        }
        self.pending_rows = 0;
        let packs = std::mem::take(&mut self.packs);
        let mut segment = Segment {
            generation: self.generation,
            packs: packs.iter().map(|pack| SegmentPack { id: pack.id, len: pack.len }).collect(),
            rows: Vec::with_capacity(packs.iter().map(|pack| pack.rows.len()).sum()),
        };
        for (number, pack) in (0..).zip(&packs) {
            segment.rows.extend(pack.rows.iter().map(|row| (*row, number)));
        }
        let bytes = Bytes::from(segment.encode());
        let id = SegmentId::from_bytes(self.random.bytes());
        let name = SegmentRef { id, generation: self.generation, digest: Digest::of(&bytes), len: length(bytes.len()) };
        self.runtime.block_on(self.origin.put(&segment_path(self.generation, id), bytes.into()))?;
        self.stored.bytes += name.len;
        self.stored.segments.push(name);
        self.stored.packs.extend(packs.iter().map(|pack| pack.id));
        Ok(())
    }
}

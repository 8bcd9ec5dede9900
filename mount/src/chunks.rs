//! The content of files: chunks read once, by one thread, neighbours together, and kept up to a bound.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use forebay_cas::numbers::index;
use forebay_cas::pieces::Piece;
use forebay_cas::{Classify, ErrorClass, ReadError};
use forebay_format::{ChunkId, ChunkRef, DecodeError, FrameKind, ListNode, ListRef};

use crate::cache::{Cache, Claim, Flight, Room, Ticket};
use crate::error::TreeError;
use crate::folder::Access;
use crate::layout::{Layout, Part};
use crate::source::Source;

/// Plain bytes asked for at once: long enough for few requests, short enough that the first of them come soon.
const BATCH_BYTES: u64 = 4 << 20;

/// Plain bytes of a chunk.
type Bytes = Box<[u8]>;
/// Takes chunks as they come.
type Take<'t> = dyn FnMut(ChunkId, &Arc<Bytes>) + 't;

thread_local! {
    /// Reads that span chunks are put together here.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads ranges of files.
#[derive(Debug)]
pub(crate) struct Chunks {
    source: Arc<dyn Source>,
    data: Cache<ChunkId, Bytes>,
    lists: Cache<ChunkId, ListNode>,
}

/// What is asked of the source together, in order.
#[derive(Default)]
struct Batch<'c> {
    tickets: Vec<Ticket<'c, ChunkId, Bytes>>,
    pieces: Vec<Piece>,
    bytes: u64,
}

impl Chunks {
    /// Nothing read yet; at most so many bytes of content and of lists will be kept.
    pub(crate) fn new(source: Arc<dyn Source>, data_bytes_max: u64, list_bytes_max: u64) -> Self {
        Self { source, data: Cache::new(data_bytes_max), lists: Cache::new(list_bytes_max) }
    }

    /// Hands the bytes of a range to `take`; the range ends within the file.
    ///
    /// # Errors
    /// [`TreeError::NotCached`] or [`TreeError::Read`]; `take` has not been called then.
    pub(crate) fn read<T>(
        &self,
        layout: &Layout,
        range: &Range<u64>,
        access: Access,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, TreeError> {
        let parts = self.parts(layout, range, access)?;
        if let [part] = parts.as_slice() {
            let (start, bytes) = match part {
                Part::Inline(start, bytes) => (*start, Held::Inline(bytes)),
                Part::Chunk(start, chunk) => (*start, Held::Chunk(self.one(*chunk, access)?)),
            };
            let bytes = bytes.as_slice();
            if start <= range.start && range.end <= start + bytes.len() as u64 {
                return Ok(take(&bytes[index(range.start - start)..index(range.end - start)]));
            }
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(index(range.end - range.start), 0);
            self.assemble(&parts, range, access, buffer)?;
            Ok(take(buffer))
        })
    }

    /// Reads what is not here yet and nobody else reads, as far as there is room. What fails is left to whoever wants
    /// it.
    pub(crate) fn read_ahead(&self, wanted: &[(&Layout, Range<u64>)]) -> Result<(), TreeError> {
        let mut batch = Batch::default();
        for (layout, range) in wanted {
            for part in self.parts(layout, range, Access::Load)? {
                let Part::Chunk(_, chunk) = part else { continue };
                match self.data.claim(chunk.id, chunk.len.into(), Room::Ahead) {
                    Claim::Mine(ticket) => batch.push(ticket, chunk),
                    Claim::Ready(_) | Claim::Theirs(_) | Claim::Full => {}
                }
                if batch.bytes >= BATCH_BYTES {
                    self.load(std::mem::take(&mut batch), &mut |_, _| {})?;
                }
            }
        }
        self.load(batch, &mut |_, _| {})
    }

    /// Says that a range has been read to its end: chunks that end in it will hardly be wanted again.
    pub(crate) fn use_up(&self, layout: &Layout, range: &Range<u64>) {
        let Ok(parts) = self.parts(layout, range, Access::Cached) else { return };
        for part in parts {
            if let Part::Chunk(start, chunk) = part
                && start + u64::from(chunk.len) <= range.end
            {
                self.data.use_up(chunk.id);
            }
        }
    }

    /// Bytes of content that are kept and that are being read.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.data.bytes()
    }

    fn parts<'l>(&self, layout: &'l Layout, range: &Range<u64>, access: Access) -> Result<Vec<Part<'l>>, TreeError> {
        layout.parts(range, &mut |list: &ListRef| match access {
            Access::Cached => self.lists.peek(list.id).ok_or(TreeError::NotCached),
            Access::Load => {
                let load = || self.source.list(list.id, list.bytes);
                Ok(self.lists.get_or_load(list.id, weight_of_list, load)?)
            }
        })
    }

    fn one(&self, chunk: ChunkRef, access: Access) -> Result<Arc<Bytes>, TreeError> {
        if access == Access::Cached {
            return self.data.peek(chunk.id).ok_or(TreeError::NotCached).and_then(|bytes| checked(bytes, chunk));
        }
        loop {
            match self.data.claim(chunk.id, chunk.len.into(), Room::Wait) {
                Claim::Ready(bytes) => return checked(bytes, chunk),
                Claim::Mine(ticket) => {
                    let mut batch = Batch::default();
                    batch.push(ticket, chunk);
                    let mut found = None;
                    self.load(batch, &mut |_, bytes| found = Some(Arc::clone(bytes)))?;
                    let (id, kind) = (chunk.id, FrameKind::Data);
                    return found.ok_or(ReadError::Missing { id, kind }.into()).and_then(|bytes| checked(bytes, chunk));
                }
                Claim::Theirs(flight) => {
                    if let Some(result) = self.data.wait(chunk.id, &flight) {
                        return result.map_err(TreeError::from).and_then(|bytes| checked(bytes, chunk));
                    }
                }
                // A claim that waits is never told this.
                Claim::Full => {}
            }
        }
    }

    /// Puts the bytes of a range together. Nobody is waited for while there is something to read oneself, else two
    /// readers could wait for each other.
    fn assemble(
        &self,
        parts: &[Part<'_>],
        range: &Range<u64>,
        access: Access,
        buffer: &mut [u8],
    ) -> Result<(), TreeError> {
        let mut end = range.start;
        let mut batch = Batch::default();
        let mut later: Vec<Later> = Vec::new();
        for part in parts {
            let (start, len) = match part {
                Part::Inline(start, bytes) => {
                    copy(*start, bytes, range, buffer);
                    (*start, bytes.len() as u64)
                }
                Part::Chunk(start, chunk) => {
                    let wait = if batch.tickets.is_empty() && later.is_empty() { Room::Wait } else { Room::Try };
                    match self.claim(*chunk, access, wait)? {
                        Claim::Ready(bytes) => copy(*start, &checked(bytes, *chunk)?, range, buffer),
                        Claim::Mine(ticket) => {
                            batch.push(ticket, *chunk);
                            later.push(Later { start: *start, chunk: *chunk, flight: None });
                        }
                        Claim::Theirs(flight) => {
                            later.push(Later { start: *start, chunk: *chunk, flight: Some(flight) })
                        }
                        Claim::Full => later.push(Later { start: *start, chunk: *chunk, flight: None }),
                    }
                    (*start, u64::from(chunk.len))
                }
            };
            fill_zeros(end..start, range, buffer);
            end = start + len;
        }
        fill_zeros(end..range.end, range, buffer);
        let mut loaded: Vec<(ChunkId, Arc<Bytes>)> = Vec::with_capacity(batch.pieces.len());
        self.load(batch, &mut |id, bytes| loaded.push((id, Arc::clone(bytes))))?;
        for Later { start, chunk, flight } in later {
            let own = loaded.iter().find(|(id, _)| *id == chunk.id).map(|(_, bytes)| Arc::clone(bytes));
            let theirs = own.map(Ok).or_else(|| self.data.wait(chunk.id, &flight?));
            let bytes = match theirs {
                Some(result) => checked(result?, chunk)?,
                None => self.one(chunk, access)?,
            };
            copy(start, &bytes, range, buffer);
        }
        Ok(())
    }

    fn claim(&self, chunk: ChunkRef, access: Access, room: Room) -> Result<Claim<'_, ChunkId, Bytes>, TreeError> {
        match access {
            Access::Cached => self.data.peek(chunk.id).map(Claim::Ready).ok_or(TreeError::NotCached),
            Access::Load => Ok(self.data.claim(chunk.id, chunk.len.into(), room)),
        }
    }

    /// Reads a batch and hands out what came. If a piece is damaged, the others are read on their own, so that each
    /// read fails only for what it asked for; the first error is returned.
    fn load(&self, mut batch: Batch<'_>, take: &mut Take<'_>) -> Result<(), TreeError> {
        if batch.pieces.is_empty() {
            return Ok(());
        }
        let pieces = std::mem::take(&mut batch.pieces);
        let Err(error) = self.load_pieces(pieces, &mut batch, take) else { return Ok(()) };
        let alone = batch.tickets.len() == 1;
        if alone || error.class() != ErrorClass::Corrupt {
            // The pieces were asked for together: what one was refused, all were.
            let error = Arc::new(error);
            for ticket in batch.tickets {
                ticket.fail(&error);
            }
            return Err(error.into());
        }
        let mut first = None;
        for ticket in batch.tickets {
            let len = u32::try_from(ticket.reserved()).unwrap_or(u32::MAX);
            let mut single = Batch::default();
            let chunk = ChunkRef { id: ticket.key(), len };
            single.push(ticket, chunk);
            if let Err(error) = self.load(single, take) {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn load_pieces(&self, pieces: Vec<Piece>, batch: &mut Batch<'_>, take: &mut Take<'_>) -> Result<(), ReadError> {
        let tickets = &mut batch.tickets;
        self.source.data(pieces, &mut |piece, bytes| {
            if let Some(at) = tickets.iter().position(|ticket| ticket.key() == piece.id) {
                take(piece.id, &tickets.swap_remove(at).fill(bytes.into(), bytes.len() as u64));
            }
        })
    }
}

impl<'c> Batch<'c> {
    fn push(&mut self, ticket: Ticket<'c, ChunkId, Bytes>, chunk: ChunkRef) {
        self.tickets.push(ticket);
        self.pieces.push(Piece { id: chunk.id, len: chunk.len, slot: 0, offset: self.bytes });
        self.bytes += u64::from(chunk.len);
    }
}

/// A chunk of a read that is not here yet, with its offset in the file and whoever else reads it.
struct Later {
    start: u64,
    chunk: ChunkRef,
    flight: Option<Flight<Bytes>>,
}

/// Bytes of a read that needs one piece only.
enum Held<'l> {
    Inline(&'l [u8]),
    Chunk(Arc<Bytes>),
}

impl Held<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Chunk(bytes) => bytes,
        }
    }
}

/// A chunk that another file has under another length cannot be both: the id decides, and this file is damaged.
fn checked(bytes: Arc<Bytes>, chunk: ChunkRef) -> Result<Arc<Bytes>, TreeError> {
    if bytes.len() as u64 == u64::from(chunk.len) {
        return Ok(bytes);
    }
    let (id, kind) = (chunk.id, FrameKind::Tree);
    let value = chunk.len.into();
    let source = DecodeError::Field { what: "file", field: "chunk length", value };
    Err(ReadError::Content { id, kind, source }.into())
}

/// Copies what `range` has of bytes that start at `start` of the file.
fn copy(start: u64, bytes: &[u8], range: &Range<u64>, buffer: &mut [u8]) {
    let (from, to) = (start.max(range.start), (start + bytes.len() as u64).min(range.end));
    if from < to {
        let target = &mut buffer[index(from - range.start)..index(to - range.start)];
        target.copy_from_slice(&bytes[index(from - start)..index(to - start)]);
    }
}

/// The buffer has been used before: holes are written too.
fn fill_zeros(hole: Range<u64>, range: &Range<u64>, buffer: &mut [u8]) {
    let (from, to) = (hole.start.max(range.start), hole.end.min(range.end));
    if from < to {
        buffer[index(from - range.start)..index(to - range.start)].fill(0);
    }
}

fn weight_of_list(list: &ListNode) -> u64 {
    let parts = match list {
        ListNode::Chunks(chunks) => size_of_val(chunks.as_slice()),
        ListNode::Lists(lists) => size_of_val(lists.as_slice()),
    };
    (parts + size_of::<ListNode>()) as u64
}

#[cfg(test)]
mod tests;

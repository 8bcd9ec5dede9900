//! Reading many chunks in few long ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use forebay_format::{ChunkId, FrameKind, PackId};

use crate::codec::Decoder;
use crate::index::Location;
use crate::numbers::{index, length};
use crate::repository::{ChunkReader, ReadError, decode_frame};

/// Frames this close are read in one range: skipping less costs more than it saves on any store.
const GAP_BYTES: u64 = 64 << 10;
/// Longest range.
const RANGE_BYTES: u64 = 4 << 20;

/// A piece of a file that is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// The chunk.
    pub id: ChunkId,
    /// Its plain length in bytes, as the manifest says.
    pub len: u32,
    /// Which of the caller's files.
    pub slot: usize,
    /// Offset in that file, or wherever the caller counts from.
    pub offset: u64,
}

/// A range of one pack with the frames wanted of it.
struct Run {
    pack: PackId,
    range: Range<u64>,
    places: Vec<Location>,
}

/// Reads pieces with memory that is used again and again; one a thread.
#[derive(Debug)]
pub struct PieceReader<'r> {
    reader: &'r ChunkReader,
    decoder: Decoder,
    plain: Vec<u8>,
    payload_bytes: u64,
}

impl<'r> PieceReader<'r> {
    /// A reader of pieces.
    #[must_use]
    pub fn new(reader: &'r ChunkReader) -> Self {
        Self { reader, decoder: Decoder::new(), plain: Vec::new(), payload_bytes: 0 }
    }

    /// Where chunks come from.
    #[must_use]
    pub const fn chunks(&self) -> &'r ChunkReader {
        self.reader
    }

    /// Plain bytes of all chunks read so far.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Reads pieces and hands each to `take` with its verified bytes, in no particular order. A chunk wanted several
    /// times is read once.
    ///
    /// # Errors
    /// What `take` returns, or [`ReadError`] of the first chunk that cannot be had whole from any place.
    pub fn read<E: From<ReadError>>(
        &mut self,
        pieces: Vec<Piece>,
        mut take: impl FnMut(&Piece, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut wanted: BTreeMap<ChunkId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            wanted.entry(piece.id).or_default().push(piece);
        }
        let mut places = Vec::with_capacity(wanted.len());
        for id in wanted.keys() {
            places.push(self.reader.locate(*id, FrameKind::Data)?);
        }
        for run in runs(places) {
            let bytes = self.read_run(&run)?;
            for place in &run.places {
                self.decode(place, bytes.as_ref(), run.range.start)?;
                self.payload_bytes += length(self.plain.len());
                for piece in wanted.get(&place.row.id()).into_iter().flatten() {
                    if self.plain.len() != index(piece.len.into()) {
                        return Err(wrong_length(piece).into());
                    }
                    take(piece, &self.plain)?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of a run; `None` if its pack is damaged or gone, for then each chunk is looked for on its own.
    fn read_run(&self, run: &Run) -> Result<Option<Bytes>, ReadError> {
        match self.reader.pack_range(run.places[0].row.id(), run.pack, run.range.clone()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::Pack { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn decode(&mut self, place: &Location, bytes: Option<&Bytes>, start: u64) -> Result<(), ReadError> {
        if let Some(bytes) = bytes {
            let frame = index(u64::from(place.row.offset) - start)..index(place.row.end() - start);
            if decode_frame(place.pack, &place.row, &bytes[frame], &mut self.decoder, &mut self.plain).is_ok() {
                return Ok(());
            }
        }
        // Another place may have it whole; if none has, this says what is wrong.
        self.plain = self.reader.chunk(place.row.id(), FrameKind::Data)?;
        Ok(())
    }
}

/// Sorts places by pack and offset and joins neighbours.
fn runs(mut places: Vec<Location>) -> Vec<Run> {
    places.sort_unstable_by_key(|place| (place.pack, place.row.offset));
    let mut runs: Vec<Run> = Vec::new();
    for place in places {
        let (start, end) = (u64::from(place.row.offset), place.row.end());
        match runs.last_mut() {
            Some(run)
                if run.pack == place.pack
                    && start <= run.range.end + GAP_BYTES
                    && end - run.range.start <= RANGE_BYTES =>
            {
                run.range.end = run.range.end.max(end);
                run.places.push(place);
            }
            _ => runs.push(Run { pack: place.pack, range: start..end, places: vec![place] }),
        }
    }
    runs
}

fn wrong_length(piece: &Piece) -> ReadError {
    let source = forebay_format::DecodeError::Field { what: "file", field: "chunk length", value: piece.len.into() };
    ReadError::Content { id: piece.id, kind: FrameKind::Tree, source }
}

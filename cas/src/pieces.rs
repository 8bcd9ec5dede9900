//! Reading many chunks together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use forebay_format::{ChunkId, FrameKind};

use crate::codec::Decoder;
use crate::numbers::{index, length};
use crate::repository::{ChunkReader, ReadError};
use crate::source::{Frame, Want};

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

/// Patches that wait for their bases at once, and their payload bytes; what comes after them is asked for again. Bases can be
/// patches too, of about as many bytes at each depth.
const HELD_PATCHES: usize = 256;
const HELD_BYTES: usize = 16 << 20;

/// Hands out a chunk that is at hand, verified, into a buffer; `false` if it is not.
pub type Near<'n> = dyn FnMut(ChunkId, &mut Vec<u8>) -> bool + 'n;

/// Reads pieces with memory that is used again and again; one a thread.
#[derive(Debug)]
pub struct PieceReader<'r> {
    reader: &'r ChunkReader,
    decoder: Decoder,
    buffer: Vec<u8>,
    base: Vec<u8>,
    payload_bytes: u64,
}

impl<'r> PieceReader<'r> {
    /// A reader of pieces.
    #[must_use]
    pub fn new(reader: &'r ChunkReader) -> Self {
        Self { reader, decoder: Decoder::new(), buffer: Vec::new(), base: Vec::new(), payload_bytes: 0 }
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
        take: impl FnMut(&Piece, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.read_near(pieces, &mut |_, _| false, take)
    }

    /// As [`Self::read`]; what patches are made of is taken from `near` where that has it.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_near<E: From<ReadError>>(
        &mut self,
        pieces: Vec<Piece>,
        near: &mut Near<'_>,
        mut take: impl FnMut(&Piece, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Wants keep the order of the pieces: that of the file, which is that of the packs.
        let mut queue: Vec<Want> = Vec::with_capacity(pieces.len());
        let mut wanted: BTreeMap<ChunkId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            let same = wanted.entry(piece.id).or_default();
            if same.is_empty() {
                queue.push(Want { id: piece.id, len: piece.len });
            }
            same.push(piece);
        }
        let Self { reader, decoder, buffer, base, payload_bytes } = self;
        let mut reading = Reading {
            decoder,
            base,
            payload_bytes: &mut *payload_bytes,
            wanted,
            came: BTreeSet::new(),
            waiting: BTreeMap::new(),
            held: Held::default(),
            near,
            take: &mut take,
        };
        while !queue.is_empty() {
            reading.round(reader, &queue, true, buffer)?;
            queue.retain(|want| !reading.came.contains(&want.id));
            if !reading.held.is_full() {
                queue.clear();
            }
            reading.fetch_bases(reader, buffer)?;
        }
        let left = reading.wanted;
        for (id, same) in left {
            // Another place may have it whole; if none has, this says what is wrong.
            let plain = reader.chunk(id, FrameKind::Data)?;
            *payload_bytes += length(plain.len());
            hand_out(&same, &plain, &mut take)?;
        }
        Ok(())
    }
}

/// How many patches wait for their bases.
#[derive(Debug, Default)]
struct Held {
    patches: usize,
    bytes: usize,
}

impl Held {
    const fn is_full(&self) -> bool {
        self.patches >= HELD_PATCHES || self.bytes >= HELD_BYTES
    }
}

/// Takes a piece with its verified bytes.
type Take<'t, E> = dyn FnMut(&Piece, &[u8]) -> Result<(), E> + 't;

/// Pieces that are being read: what is wanted, and the patches that came before their bases.
struct Reading<'p, 't, E> {
    decoder: &'p mut Decoder,
    base: &'p mut Vec<u8>,
    payload_bytes: &'p mut u64,
    wanted: BTreeMap<ChunkId, Vec<Piece>>,
    /// Wanted chunks whose frames came, whole or not.
    came: BTreeSet<ChunkId>,
    /// Patches by their base.
    waiting: BTreeMap<ChunkId, Vec<Frame>>,
    held: Held,
    near: &'p mut Near<'t>,
    take: &'p mut Take<'t, E>,
}

impl<E: From<ReadError>> Reading<'_, '_, E> {
    /// Asks for chunks and takes in what comes, as long as there is room for patches if that is `limited`.
    fn round(&mut self, reader: &ChunkReader, wants: &[Want], limited: bool, buffer: &mut Vec<u8>) -> Result<(), E> {
        let mut failed = None;
        reader.source().frames(FrameKind::Data, wants, &mut |frame| match self.frame(&frame, buffer) {
            Ok(()) if limited && self.held.is_full() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Asks for what patches wait for, until none waits; lets those go whose bases do not come whole.
    fn fetch_bases(&mut self, reader: &ChunkReader, buffer: &mut Vec<u8>) -> Result<(), E> {
        let mut asked = BTreeSet::new();
        loop {
            let bases = self.waiting.keys().filter(|base| asked.insert(**base));
            let wants: Vec<Want> = bases.map(|base| Want { id: *base, len: 0 }).collect();
            if wants.is_empty() {
                self.waiting.clear();
                self.held = Held::default();
                return Ok(());
            }
            self.round(reader, &wants, false, buffer)?;
        }
    }

    /// Takes a frame in. One that does not decode stays wanted. One that nobody asked for is not looked at.
    fn frame(&mut self, frame: &Frame, buffer: &mut Vec<u8>) -> Result<(), E> {
        let header = &frame.header;
        let waits = self.waiting.get(&header.id);
        // A base that lies deeper than what it is the base of leads in a circle.
        let falls = waits.is_none_or(|waits| waits.iter().all(|patch| header.depth < patch.header.depth));
        if header.kind != FrameKind::Data || !falls || (waits.is_none() && !self.wanted.contains_key(&header.id)) {
            return Ok(());
        }
        self.came.insert(header.id);
        let base = match header.base {
            None => None,
            Some(id) if (self.near)(id, self.base) => Some(&**self.base),
            Some(id) => {
                self.held.patches += 1;
                self.held.bytes += frame.payload.len();
                self.waiting.entry(id).or_default().push(frame.clone());
                return Ok(());
            }
        };
        if let Ok(plain) = self.decoder.decode(header, &frame.payload, base, buffer) {
            self.plain(header.id, plain)?;
        }
        Ok(())
    }

    /// Hands a chunk out, and what was waiting for it.
    fn plain(&mut self, id: ChunkId, plain: &[u8]) -> Result<(), E> {
        *self.payload_bytes += length(plain.len());
        if let Some(same) = self.wanted.remove(&id) {
            hand_out(&same, plain, &mut self.take)?;
        }
        for patch in self.waiting.remove(&id).unwrap_or_default() {
            self.held.patches -= 1;
            self.held.bytes -= patch.payload.len();
            let mut buffer = Vec::new();
            if let Ok(plain) = self.decoder.decode(&patch.header, &patch.payload, Some(plain), &mut buffer) {
                self.plain(patch.header.id, plain)?;
            }
        }
        Ok(())
    }
}

fn hand_out<E: From<ReadError>>(
    same: &[Piece],
    plain: &[u8],
    take: &mut impl FnMut(&Piece, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for piece in same {
        if plain.len() != index(piece.len.into()) {
            return Err(wrong_length(piece).into());
        }
        take(piece, plain)?;
    }
    Ok(())
}

fn wrong_length(piece: &Piece) -> ReadError {
    let source = forebay_format::DecodeError::Field { what: "file", field: "chunk length", value: piece.len.into() };
    ReadError::Content { id: piece.id, kind: FrameKind::Tree, source }
}

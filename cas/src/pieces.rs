//! Reading many chunks together.

use std::collections::BTreeMap;
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

/// Reads pieces with memory that is used again and again; one a thread.
#[derive(Debug)]
pub struct PieceReader<'r> {
    reader: &'r ChunkReader,
    decoder: Decoder,
    buffer: Vec<u8>,
    payload_bytes: u64,
}

impl<'r> PieceReader<'r> {
    /// A reader of pieces.
    #[must_use]
    pub fn new(reader: &'r ChunkReader) -> Self {
        Self { reader, decoder: Decoder::new(), buffer: Vec::new(), payload_bytes: 0 }
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
        if pieces.is_empty() {
            return Ok(());
        }
        // Wants keep the order of the pieces: that of the file, which is that of the packs.
        let mut wants: Vec<Want> = Vec::with_capacity(pieces.len());
        let mut wanted: BTreeMap<ChunkId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            let same = wanted.entry(piece.id).or_default();
            if same.is_empty() {
                wants.push(Want { id: piece.id, len: piece.len });
            }
            same.push(piece);
        }
        let Self { reader, decoder, buffer, payload_bytes } = self;
        let mut failed = None;
        reader.source().frames(FrameKind::Data, &wants, &mut |frame| {
            // One that does not decode stays wanted. So does one that nobody asked for: it is not looked at.
            let Some(same) = wanted.get(&frame.header.id) else { return ControlFlow::Continue(()) };
            let Some(plain) = decode(decoder, &frame, buffer) else { return ControlFlow::Continue(()) };
            *payload_bytes += length(plain.len());
            match hand_out(same, plain, &mut take) {
                Ok(()) => {
                    wanted.remove(&frame.header.id);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        for (id, same) in wanted {
            // Another place may have it whole; if none has, this says what is wrong.
            let plain = self.reader.chunk(id, FrameKind::Data)?;
            self.payload_bytes += length(plain.len());
            hand_out(&same, &plain, &mut take)?;
        }
        Ok(())
    }
}

fn decode<'b>(decoder: &mut Decoder, frame: &'b Frame, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    if frame.header.kind != FrameKind::Data {
        return None;
    }
    decoder.decode(&frame.header, &frame.payload, buffer).ok()
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

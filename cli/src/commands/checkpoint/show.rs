//! `forebay checkpoint show`

use std::collections::BTreeSet;

use forebay_cas::pieces::PieceReader;
use forebay_cas::tree::{Visitor, for_each_chunk, walk};
use forebay_cas::{ChunkReader, Classify, ErrorClass, ReadError};
use forebay_checkpoint::signature::{self, CheckError};
use forebay_checkpoint::{Keys, Tensor, tensors};
use forebay_format::{ChunkId, Directory, Entry, EntryKind, FileEntry, FrameKind};
use forebay_transfer::NodeId;
use serde_json::{Value, json};

use super::{Opened, open};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use crate::trust::{Trust, TrustList};

pub(super) fn run(context: &Context<'_>, checkpoint: &str) -> Result<(), Failure> {
    let opened = open(context, checkpoint)?;
    let signed = Signed::of(&opened)?;
    let version = &opened.checkpoint.version;
    context.output.line(&format!(
        "{}  version {} of {}, {} by {}",
        opened.name(),
        version.sequence,
        opened.checkpoint.run,
        text::time(version.time),
        text::message(&version.writer)
    ))?;
    context.output.line(&format!("snapshot {}", version.snapshot))?;
    context.output.line(&signed.sentence)?;
    let mut lister = Lister {
        context,
        pieces: PieceReader::new(&opened.reader),
        seen: BTreeSet::new(),
        tensors: 0,
        chunks: 0,
        missing: 0,
        damaged: 0,
    };
    walk(&opened.reader, &opened.snapshot.root, &mut lister).map_err(|Stopped(failure)| failure)?;
    let Lister { tensors, chunks, missing, damaged, .. } = lister;
    let complete = missing + damaged == 0;
    context.output.line(&match (missing, damaged) {
        (0, 0) => format!("complete: {} there", text::count(chunks, "chunk")),
        (0, damaged) => format!("damaged: {} cannot be read", text::count(damaged, "header")),
        (missing, _) => format!("not complete: {missing} of {} missing", text::count(chunks, "chunk")),
    })?;
    let totals = &opened.snapshot.root.totals;
    context.output.result(json!({
        "run": opened.checkpoint.run.as_str(), "step": opened.checkpoint.step, "seq": version.sequence,
        "snapshot": version.snapshot.to_hex(), "parent": version.parent.map(|parent| parent.to_hex()),
        "time": text::time_json(version.time), "writer": version.writer,
        "files": totals.files, "bytes": totals.bytes, "tensors": tensors,
        "signature": signed.word, "signed_by": signed.signer.map(|key| key.to_string()),
        "envelope": envelope(&opened)?,
        "complete": complete, "chunks": chunks, "missing": missing, "damaged": damaged,
    }))?;
    context.output.flush()
}

/// The signature as it is stored, for other tools that read DSSE.
fn envelope(opened: &Opened) -> Result<Option<Value>, Failure> {
    let Some(id) = opened.checkpoint.version.envelope else { return Ok(None) };
    let bytes = opened.reader.chunk(id, FrameKind::Envelope)?;
    Ok(serde_json::from_slice(&bytes).ok())
}

/// What there is to say of the signature. Nothing here refuses it: that is what `restore` and `verify` are for.
struct Signed {
    sentence: String,
    word: &'static str,
    signer: Option<NodeId>,
}

impl Signed {
    fn of(opened: &Opened) -> Result<Self, Failure> {
        let totals = opened.snapshot.root.totals;
        let signer = match signature::check(&opened.reader, &opened.checkpoint, totals, &Keys::default()) {
            Ok(signer) => signer,
            Err(CheckError::Signature(error)) => {
                let sentence = format!("signature: WRONG, {}", forebay_cas::chain(&error));
                return Ok(Self { sentence, word: "wrong", signer: None });
            }
            Err(error) => return Err(error.into()),
        };
        let Some(key) = signer else {
            return Ok(Self { sentence: "signature: none".to_owned(), word: "none", signer });
        };
        let (word, more) = match TrustList::load()?.find(key) {
            Some(Trust::Trusted) => ("trusted", "right, and the key is trusted here"),
            Some(Trust::Revoked) => ("revoked", "right, and the key is REVOKED here"),
            None => ("unchecked", "right, and the key is not known here (`forebay key trust add` makes it)"),
        };
        Ok(Self { sentence: format!("signature: by {key}, {more}"), word, signer })
    }
}

struct Lister<'l, 'o> {
    context: &'l Context<'o>,
    pieces: PieceReader<'l>,
    seen: BTreeSet<ChunkId>,
    tensors: u64,
    chunks: u64,
    missing: u64,
    damaged: u64,
}

impl Lister<'_, '_> {
    fn file(&mut self, path: &[u8], file: &FileEntry) -> Result<(), Failure> {
        let (chunks, missing) = count_chunks(self.pieces.chunks(), file, &mut self.seen)?;
        self.chunks += chunks;
        self.missing += missing;
        let header = match tensors::stored_header(&mut self.pieces, file) {
            Ok(header) => header,
            Err(error) if error.class() == ErrorClass::Corrupt => {
                self.damaged += 1;
                None
            }
            Err(error) => return Err(error.into()),
        };
        let tensors = header.map(|header| header.tensors).unwrap_or_default();
        self.tensors += tensors.len() as u64;
        let count = text::count(tensors.len() as u64, "tensor");
        self.context.output.line(&format!("{}  {}, {count}", text::name(path), text::bytes(file.size)))?;
        let mut object = json!({
            "size": file.size, "blake3": file.digest.to_hex(), "tensors": tensors.len(), "missing": missing,
        });
        text::add_path(&mut object, path);
        self.context.output.item("file", object)?;
        tensors.iter().try_for_each(|tensor| self.tensor(path, tensor))
    }

    fn tensor(&self, path: &[u8], tensor: &Tensor) -> Result<(), Failure> {
        let name = text::message(&tensor.name);
        let (dtype, size) = (text::message(tensor.dtype.name()), text::bytes(tensor.len));
        self.context.output.line(&format!("  {name}  {dtype} {:?}  {size}", tensor.shape))?;
        let mut object = json!({
            "name": tensor.name, "dtype": tensor.dtype.name(), "shape": tensor.shape, "bytes": tensor.len,
        });
        text::add_path(&mut object, path);
        self.context.output.item("tensor", object)
    }
}

/// Chunks of a file not seen before, and how many of them have no place.
fn count_chunks(reader: &ChunkReader, file: &FileEntry, seen: &mut BTreeSet<ChunkId>) -> Result<(u64, u64), ReadError> {
    let (mut chunks, mut missing) = (0, 0);
    for_each_chunk::<ReadError>(reader, file, |chunk| {
        if seen.insert(chunk.id) {
            chunks += 1;
            match reader.has(chunk.id, FrameKind::Data) {
                Ok(true) => {}
                Ok(false) => missing += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })?;
    Ok((chunks, missing))
}

impl Visitor for Lister<'_, '_> {
    type Error = Stopped;

    fn enter(&mut self, _: &[u8], _: &Entry, _: &Directory) -> Result<bool, Stopped> {
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), Stopped> {
        if self.context.cancel.is_cancelled() {
            return Err(Stopped(Failure::new(ErrorClass::Interrupted, "interrupted")));
        }
        match &entry.kind {
            EntryKind::File(file) => self.file(path, file).map_err(Stopped),
            EntryKind::Dir(_) | EntryKind::Symlink(_) => Ok(()),
        }
    }
}

/// Carries a failure through the walk.
struct Stopped(Failure);

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(error.into())
    }
}

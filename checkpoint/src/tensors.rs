//! Tensors in the files of a checkpoint. A file that is no safetensors file has none; it is never an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use forebay_cas::content::read_start;
use forebay_cas::numbers::index;
use forebay_cas::pieces::PieceReader;
use forebay_cas::tree::{Visitor, walk};
use forebay_cas::{ChunkReader, ReadError};
use forebay_format::{Directory, Entry, EntryKind, FileEntry};

use crate::safetensors::{Header, HeaderLimits, header_len};

const PREFIX: usize = 8;

/// The header of a stored file, read from the repository; only the chunks that hold it are read.
///
/// # Errors
/// [`ReadError`] if one of them is missing or damaged.
pub fn stored_header(pieces: &mut PieceReader<'_>, file: &FileEntry) -> Result<Option<Header>, ReadError> {
    let limits = HeaderLimits::default();
    let start = read_start(pieces, file, PREFIX)?;
    let Some(len) = plausible_len(&start, file.size, &limits) else { return Ok(None) };
    let start = read_start(pieces, file, PREFIX + len)?;
    Ok(Header::parse(&start[PREFIX..], file.size, &limits).ok())
}

/// The header of a file of this machine that has this length.
///
/// # Errors
/// What the file system says.
pub fn local_header(path: &Path, size: u64) -> io::Result<Option<Header>> {
    let limits = HeaderLimits::default();
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != size || size < PREFIX as u64 {
        return Ok(None);
    }
    let mut prefix = [0; PREFIX];
    file.read_exact(&mut prefix)?;
    let Some(len) = plausible_len(&prefix, size, &limits) else { return Ok(None) };
    let mut json = vec![0; len];
    file.read_exact(&mut json)?;
    Ok(Header::parse(&json, size, &limits).ok())
}

/// Counts the tensors in the files of a version, as they lie on this machine where `place` says. What is not there, or
/// has changed its length, is not counted.
///
/// # Errors
/// [`ReadError`] if the manifest is missing or damaged.
pub fn count_local(reader: &ChunkReader, root: &Directory, place: impl Fn(&[u8]) -> PathBuf) -> Result<u64, ReadError> {
    let mut counter = Counter { place, tensors: 0 };
    walk(reader, root, &mut counter)?;
    Ok(counter.tensors)
}

struct Counter<P> {
    place: P,
    tensors: u64,
}

impl<P: Fn(&[u8]) -> PathBuf> Visitor for Counter<P> {
    type Error = ReadError;

    fn enter(&mut self, _: &[u8], _: &Entry, _: &Directory) -> Result<bool, ReadError> {
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        if let EntryKind::File(file) = &entry.kind
            && let Ok(Some(header)) = local_header(&(self.place)(path), file.size)
        {
            self.tensors += header.tensors.len() as u64;
        }
        Ok(())
    }
}

/// The length of the header, if the first bytes can be those of a safetensors file.
fn plausible_len(start: &[u8], size: u64, limits: &HeaderLimits) -> Option<usize> {
    let prefix = *start.first_chunk::<PREFIX>()?;
    let len = header_len(prefix, size, limits).ok()?;
    // `{}` is the shortest object there is.
    (len >= 2).then_some(len).filter(|len| index(size) >= PREFIX + len)
}

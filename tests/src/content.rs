//! Content and choices that are random to the eye and equal in every run.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::json;

/// `len` bytes that depend on `seed` alone and that no codec can shrink.
pub fn rnd(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream(seed).fill(&mut bytes);
    bytes
}

/// Writes [`rnd`]`(seed, len)` to `path`, whose parent folders are made.
pub fn write_rnd(path: impl AsRef<Path>, seed: u64, len: usize) {
    let path = path.as_ref();
    let parent = path.parent().expect("a file has a folder");
    fs::create_dir_all(parent).expect("a folder of the test can be made");
    fs::write(path, rnd(seed, len)).expect("a file of the test can be written");
}

/// As [`write_rnd`], but through a buffer of 1 MiB: for files that should not stand in memory.
pub fn write_rnd_file(path: impl AsRef<Path>, seed: u64, len: u64) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder of the test can be made");
    let mut file = File::create(path).expect("a file of the test can be made");
    let mut source = Xof(stream(seed)).take(len);
    io::copy(&mut source, &mut file).expect("a file of the test can be written");
    file.flush().expect("a file of the test can be written");
}

/// A safetensors file: a header that names these tensors of this type, shape and length in bytes, and random bytes.
pub fn safetensors(seed: u64, tensors: &[(&str, &str, &[u64], usize)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, dtype, shape, len) in tensors {
        let offsets = [end, end + len];
        header.insert((*name).to_owned(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        end += len;
    }
    let mut json = serde_json::Value::from(header).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&json);
    file.extend_from_slice(&rnd(seed, end));
    file
}

struct Xof(blake3::OutputReader);

impl Read for Xof {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.fill(buf);
        Ok(buf.len())
    }
}

fn stream(seed: u64) -> blake3::OutputReader {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof()
}

/// A seeded source of choices (SplitMix64): equal seeds give equal choices on every machine.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        self.next_u64() % end
    }

    /// An index into something of length `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("an index below a usize is a usize")
    }
}

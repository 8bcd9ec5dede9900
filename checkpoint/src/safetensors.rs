//! The header of a safetensors file.
//!
//! Layout: `[length of the header: u64 LE][header: JSON][data]`. The header is an object with one member per
//! tensor, `{"dtype", "shape", "data_offsets": [begin, end]}` with offsets from the start of the data, and
//! perhaps `__metadata__`, an object of strings. It may end with spaces, need not end at a multiple of 8, and
//! may name tensors in any order.
//!
//! More is accepted than the reference reader does: bytes between tensors and behind the last one (they are
//! bytes of the file that belong to no tensor), types it does not know, and unknown members. What would make
//! two tensors share bytes, or reach outside the file, is refused.

use std::collections::BTreeMap;

use thiserror::Error;

mod dtype;
mod json;

pub use dtype::Dtype;

/// Bytes before the header: its length.
const PREFIX_BYTES: u64 = 8;

/// Most dimensions of a tensor; array libraries stop at 32 or 64.
pub const DIMENSIONS_MAX: usize = 64;

/// Bounds on what is read. Beyond them a file is plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderLimits {
    /// Longest header, in bytes without the 8 of its length.
    pub header_bytes_max: u64,
    /// Most tensors in one file.
    pub tensors_max: usize,
}

impl Default for HeaderLimits {
    /// 32 MiB and 262,144 tensors, so that reading a header stays well below 256 MiB of memory whatever it
    /// says. The reference reader refuses headers above 100 MB.
    fn default() -> Self {
        Self { header_bytes_max: 32 << 20, tensors_max: 1 << 18 }
    }
}

/// What the header of a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Members of `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors, by their place in the file; those of 0 bytes before the one at the same place.
    pub tensors: Vec<Tensor>,
    /// Where the data starts in the file.
    pub data_offset: u64,
}

/// One tensor. Its bytes are `offset..offset + len` of the file, and belong to no other tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, unique in the file.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, outermost first: none for a single value, a 0 for a tensor without elements.
    pub shape: Vec<u64>,
    /// Where it starts in the file, in bytes. It need not be a multiple of anything.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The length of the header in bytes, from the first 8 bytes of a file of `file_len` bytes.
///
/// # Errors
/// [`HeaderError::HeaderBeyondFile`], or [`HeaderError::HeaderTooLarge`]: do not read on.
pub fn header_len(prefix: [u8; 8], file_len: u64, limits: &HeaderLimits) -> Result<usize, HeaderError> {
    let len = u64::from_le_bytes(prefix);
    if len > file_len.saturating_sub(PREFIX_BYTES) {
        return Err(HeaderError::HeaderBeyondFile { len, file_len });
    }
    let too_large = HeaderError::HeaderTooLarge { len, max: limits.header_bytes_max };
    if len > limits.header_bytes_max {
        return Err(too_large);
    }
    usize::try_from(len).or(Err(too_large))
}

impl Header {
    /// Reads the header from `json`, the bytes behind the first 8 of a file of `file_len` bytes, as many as
    /// [`header_len`] says.
    ///
    /// Memory: about four times `json`, within `limits`.
    ///
    /// # Errors
    /// [`HeaderError`]: the file is not a safetensors file that can be cut at its tensors.
    pub fn parse(json: &[u8], file_len: u64, limits: &HeaderLimits) -> Result<Self, HeaderError> {
        let prefix = (json.len() as u64).to_le_bytes();
        header_len(prefix, file_len, limits)?;
        let data_offset = PREFIX_BYTES + json.len() as u64;
        let data_len = file_len - data_offset;
        let raw = json::read(json, limits)?;
        let place = |tensor: json::RawTensor| tensor.place(data_offset, data_len);
        let mut tensors = raw.tensors.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        refuse_equal_names(&tensors)?;
        tensors.sort_unstable_by(|a, b| (a.offset, a.len, &a.name).cmp(&(b.offset, b.len, &b.name)));
        refuse_overlap(&tensors)?;
        Ok(Self { metadata: raw.metadata, tensors, data_offset })
    }
}

fn refuse_equal_names(tensors: &[Tensor]) -> Result<(), HeaderError> {
    let mut names: Vec<_> = tensors.iter().map(|tensor| &tensor.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(HeaderError::DuplicateName { name: pair[0].clone() }),
        None => Ok(()),
    }
}

/// `tensors` are sorted by offset. A tensor of 0 bytes overlaps nothing, wherever it stands.
fn refuse_overlap(tensors: &[Tensor]) -> Result<(), HeaderError> {
    let mut before: Option<&Tensor> = None;
    for tensor in tensors.iter().filter(|tensor| tensor.len > 0) {
        match before {
            Some(left) if tensor.offset < left.offset + left.len => {
                return Err(HeaderError::Overlap { left: left.name.clone(), right: tensor.name.clone() });
            }
            Some(_) | None => before = Some(tensor),
        }
    }
    Ok(())
}

/// Why a file is not read as safetensors. None of these is a fault of the file as such: keep it as plain bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file is shorter than the header it announces: most files of other formats end here.
    #[error("a header of {len} bytes does not fit a file of {file_len} bytes")]
    HeaderBeyondFile {
        /// Length the header says it has.
        len: u64,
        /// Length of the file.
        file_len: u64,
    },
    /// The header is longer than the limit.
    #[error("the header has {len} bytes, above the limit of {max}")]
    HeaderTooLarge {
        /// Length of the header in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// There are more tensors than the limit.
    #[error("the header has more than {max} tensors")]
    TooManyTensors {
        /// The limit.
        max: usize,
    },
    /// The header is not JSON of the expected form, or a shape has more than [`DIMENSIONS_MAX`] dimensions.
    #[error("the header is not a JSON object of tensors")]
    Json(#[source] serde_json::Error),
    /// Two tensors have one name.
    #[error("the tensor {name:?} is named twice")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A tensor lies outside the data of the file, or ends before it begins.
    #[error("the tensor {name:?} lies at {begin}..{end} of {data_len} bytes of data")]
    OutOfRange {
        /// Which tensor.
        name: String,
        /// Where it begins, from the start of the data.
        begin: u64,
        /// Where it ends.
        end: u64,
        /// Bytes of data in the file.
        data_len: u64,
    },
    /// The length of a tensor does not follow from its type and shape.
    #[error("the tensor {name:?} has {len} bytes, and its type and shape ask for {expected:?}")]
    WrongLength {
        /// Which tensor.
        name: String,
        /// Its length in bytes.
        len: u64,
        /// Bytes that type and shape ask for; `None` above 2^64.
        expected: Option<u64>,
    },
    /// Two tensors share bytes.
    #[error("the tensors {left:?} and {right:?} overlap")]
    Overlap {
        /// The first of both in the file.
        left: String,
        /// The other.
        right: String,
    },
}

#[cfg(test)]
mod tests;

//! The JSON of a header, read within limits and not believed yet.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::{DIMENSIONS_MAX, Dtype, HeaderError, HeaderLimits, Tensor};

/// Reads a header of at most `limits.tensors_max` tensors.
pub(super) fn read(json: &[u8], limits: &HeaderLimits) -> Result<RawHeader, HeaderError> {
    let mut raw = RawHeader::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let seed = Members { raw: &mut raw, tensors_max: limits.tensors_max };
    match seed.deserialize(&mut deserializer).and_then(|()| deserializer.end()) {
        Ok(()) => Ok(raw),
        Err(_) if raw.tensors.len() > limits.tensors_max => {
            Err(HeaderError::TooManyTensors { max: limits.tensors_max })
        }
        Err(error) => Err(HeaderError::Json(error)),
    }
}

/// The members of a header, tensors in the order of the file.
#[derive(Debug, Default)]
pub(super) struct RawHeader {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: Vec<RawTensor>,
}

/// One tensor as written.
#[derive(Debug)]
pub(super) struct RawTensor {
    name: String,
    info: TensorInfo,
}

#[derive(Debug, Deserialize)]
struct TensorInfo {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

impl RawTensor {
    /// The tensor at its place in the file, if that place and its length make sense.
    pub(super) fn place(self, data_offset: u64, data_len: u64) -> Result<Tensor, HeaderError> {
        let Self { name, info: TensorInfo { dtype, shape: Shape(shape), data_offsets: (begin, end) } } = self;
        if begin > end || end > data_len {
            return Err(HeaderError::OutOfRange { name, begin, end, data_len });
        }
        let (dtype, len) = (Dtype::from_name(&dtype), end - begin);
        if let Some(element_bytes) = dtype.element_bytes() {
            let expected = bytes_of(element_bytes, &shape);
            if expected != Some(len) {
                return Err(HeaderError::WrongLength { name, len, expected });
            }
        }
        Ok(Tensor { name, dtype, shape, offset: data_offset + begin, len })
    }
}

/// Bytes of a tensor of this shape; `None` above 2^64. A 0 anywhere makes it empty.
fn bytes_of(element_bytes: u64, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(element_bytes, |bytes, dimension| bytes.checked_mul(*dimension))
}

/// Fills a header member by member, and stops at the first tensor above the limit.
struct Members<'a> {
    raw: &'a mut RawHeader,
    tensors_max: usize,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name == "__metadata__" {
                self.raw.metadata = members.next_value::<Option<_>>()?.unwrap_or_default();
                continue;
            }
            let info = members.next_value()?;
            self.raw.tensors.push(RawTensor { name, info });
            if self.raw.tensors.len() > self.tensors_max {
                return Err(A::Error::custom("too many tensors"));
            }
        }
        Ok(())
    }
}

/// The dimensions of a tensor, of which two bytes of JSON make eight of memory: bounded while they are read.
#[derive(Debug)]
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Dimensions).map(Self)
    }
}

struct Dimensions;

impl<'de> Visitor<'de> for Dimensions {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {DIMENSIONS_MAX} dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
        let mut dimensions = Vec::new();
        while let Some(dimension) = list.next_element()? {
            if dimensions.len() == DIMENSIONS_MAX {
                return Err(A::Error::invalid_length(DIMENSIONS_MAX + 1, &self));
            }
            dimensions.push(dimension);
        }
        Ok(dimensions)
    }
}

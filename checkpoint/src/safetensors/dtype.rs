//! Types of elements.

use std::fmt;

/// The type of the elements of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of the format, and name width and kind")]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    F8E4m3,
    F8E5m2,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    /// Another type, by its name in the file. How many bytes an element has is not known.
    Other(Box<str>),
}

impl Dtype {
    /// The type of this name in a file. Every name has one.
    pub fn from_name(name: &str) -> Self {
        let known = KNOWN.iter().find(|(_, known, _)| *known == name);
        known.map_or_else(|| Self::Other(name.into()), |(dtype, _, _)| dtype.clone())
    }

    /// The name in a file.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => known.row().map_or("", |(_, name, _)| name),
        }
    }

    /// Bytes of one element; `None` for a type that is not known.
    pub fn element_bytes(&self) -> Option<u64> {
        self.row().map(|(_, _, bytes)| *bytes)
    }

    fn row(&self) -> Option<&'static (Self, &'static str, u64)> {
        KNOWN.iter().find(|(known, _, _)| known == self)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Each type with its name in a file and the bytes of one element.
static KNOWN: [(Dtype, &str, u64); 15] = [
    (Dtype::F64, "F64", 8),
    (Dtype::F32, "F32", 4),
    (Dtype::F16, "F16", 2),
    (Dtype::Bf16, "BF16", 2),
    (Dtype::F8E4m3, "F8_E4M3", 1),
    (Dtype::F8E5m2, "F8_E5M2", 1),
    (Dtype::I64, "I64", 8),
    (Dtype::I32, "I32", 4),
    (Dtype::I16, "I16", 2),
    (Dtype::I8, "I8", 1),
    (Dtype::U64, "U64", 8),
    (Dtype::U32, "U32", 4),
    (Dtype::U16, "U16", 2),
    (Dtype::U8, "U8", 1),
    (Dtype::Bool, "BOOL", 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (dtype, name, bytes) in &KNOWN {
            assert_eq!((&Dtype::from_name(name), dtype.name()), (dtype, *name));
            assert_eq!(dtype.element_bytes(), Some(*bytes));
        }
        let other = Dtype::from_name("F4_E2M1");
        assert_eq!((other.to_string().as_str(), other.element_bytes()), ("F4_E2M1", None));
    }
}

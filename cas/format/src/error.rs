//! The one error of all decoders.

use crate::name::EntryNameError;

/// Why bytes are not what they claim to be. Every variant means the same to a caller: the bytes are damaged, forged,
/// or written by a newer version; they must not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object is longer than [`crate::Limits`] allows; nothing of it was decoded.
    #[error("{what} has {len} bytes, more than the limit of {limit}")]
    TooLong {
        /// What was decoded.
        what: &'static str,
        /// Bytes there are.
        len: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The object ends before its own counts say it should.
    #[error("{what} is cut short: {needed} bytes needed, {len} there")]
    Truncated {
        /// What was decoded.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        len: u64,
    },
    /// The first bytes are not this format's magic.
    #[error("{what} does not start with its magic")]
    Magic {
        /// What was decoded.
        what: &'static str,
    },
    /// The format version is not one this program reads.
    #[error("{what} has format version {found}, this program reads {supported}")]
    Version {
        /// What was decoded.
        what: &'static str,
        /// Version in the bytes.
        found: u8,
        /// Version this program reads.
        supported: u8,
    },
    /// A checksum over the object itself does not hold.
    #[error("{what} fails its checksum")]
    Checksum {
        /// What was decoded.
        what: &'static str,
    },
    /// A field has a value the format does not allow.
    #[error("{what} has a bad {field}: {value}")]
    Field {
        /// What was decoded.
        what: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value found.
        value: u64,
    },
    /// Not CBOR, or CBOR of another shape.
    #[error("{what} is not valid CBOR: {detail}")]
    Cbor {
        /// What was decoded.
        what: &'static str,
        /// What the CBOR decoder says.
        detail: String,
    },
    /// Not JSON, or JSON of another shape.
    #[error("{what} is not the JSON it should be, at line {line}, column {column}")]
    Json {
        /// What was decoded.
        what: &'static str,
        /// Line of the first fault, from 1.
        line: usize,
        /// Its column.
        column: usize,
    },
    /// Valid CBOR that is not the one deterministic encoding, or has fields this program does not know.
    #[error("{what} is not in its deterministic form, or has fields of a newer version")]
    NotCanonical {
        /// What was decoded.
        what: &'static str,
    },
    /// Rows, names or versions stand out of order or twice.
    #[error("{what} is out of order at item {index}")]
    Order {
        /// What was decoded.
        what: &'static str,
        /// Index of the first item that does not follow its predecessor.
        index: u64,
    },
    /// A name in a manifest could lead out of the folder it belongs to, or cannot be a file name.
    #[error("entry '{name}' cannot be the name of a file")]
    EntryName {
        /// The name, shown lossily.
        name: String,
        /// The rule it breaks.
        source: EntryNameError,
    },
    /// Lengths inside the object contradict each other.
    #[error("{what} contradicts itself: {field} says {claimed}, the parts say {actual}")]
    Contradiction {
        /// What was decoded.
        what: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value claimed.
        claimed: u64,
        /// The value the parts give.
        actual: u64,
    },
}

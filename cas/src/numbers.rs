//! Checked conversions between the sizes of memory and of formats.

const _: () = assert!(usize::BITS == 64, "lengths of files and packs must fit into memory's own numbers");

/// A length or offset as an index into memory. Exact: every target of this crate has 64-bit sizes.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the assertion above proves that nothing is cut off")]
pub const fn index(len: u64) -> usize {
    len as usize
}

/// A length in memory as stored.
#[must_use]
pub const fn length(len: usize) -> u64 {
    len as u64
}

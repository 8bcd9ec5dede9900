//! Integers of variable length, as QUIC writes them.
//!
//! The two highest bits of the first byte give the length, 1, 2, 4 or 8 bytes; the rest is the value, big
//! endian. Unlike QUIC, a value that would fit a shorter form is refused, so that a message has one encoding.
//!
//! Source: RFC 9000 §16.

use thiserror::Error;

/// The greatest value that has an encoding: 2^62 - 1.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Why bytes are not a variable-length integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VarintError {
    /// The input ends inside the integer; more bytes may complete it.
    #[error("the input ends inside an integer of {needed} bytes")]
    Truncated {
        /// Length of the whole integer in bytes, 1 where not even the first byte is there.
        needed: usize,
    },
    /// A shorter form exists for this value.
    #[error("the integer {value} is written in {len} bytes and needs fewer")]
    NotMinimal {
        /// The value as read.
        value: u64,
        /// Bytes it took.
        len: usize,
    },
}

/// Appends `value` in its shortest form, which takes 1, 2, 4 or 8 bytes.
///
/// # Panics
/// If `value` is above [`VARINT_MAX`]. Every caller writes a `u32`, or a length already bounded by one.
pub fn encode(value: u64, out: &mut Vec<u8>) {
    assert!(value <= VARINT_MAX, "a variable-length integer holds 62 bits");
    let len = encoded_len(value);
    let prefix = u64::from(len.trailing_zeros()) << (8 * len - 2);
    let bytes = (value | prefix).to_be_bytes();
    out.extend_from_slice(&bytes[8 - len..]);
}

/// Reads one integer from the front of `input` and moves `input` past it.
///
/// # Errors
/// [`VarintError::Truncated`] or [`VarintError::NotMinimal`]; `input` has not moved then.
pub fn decode(input: &mut &[u8]) -> Result<u64, VarintError> {
    let Some(&first) = input.first() else {
        return Err(VarintError::Truncated { needed: 1 });
    };
    let len = 1_usize << (first >> 6);
    let Some((bytes, rest)) = input.split_at_checked(len) else {
        return Err(VarintError::Truncated { needed: len });
    };
    let value = bytes[1..].iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
    if encoded_len(value) != len {
        return Err(VarintError::NotMinimal { value, len });
    }
    *input = rest;
    Ok(value)
}

/// Bytes of the shortest form of `value`.
fn encoded_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equals_the_examples_of_rfc_9000() {
        // RFC 9000 appendix A.1.
        let cases: [(u64, &[u8]); 4] = [
            (151_288_809_941_952_652, &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (value, bytes) in cases {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(&mut &bytes[..]), Ok(value));
        }
    }

    #[test]
    fn refuses_a_longer_form_than_needed() {
        // The RFC's own example of 37 in two bytes.
        let mut input = &[0x40, 0x25][..];
        assert_eq!(decode(&mut input), Err(VarintError::NotMinimal { value: 37, len: 2 }));
        assert_eq!(input.len(), 2);
    }

    #[test]
    fn says_how_many_bytes_are_missing() {
        assert_eq!(decode(&mut &[][..]), Err(VarintError::Truncated { needed: 1 }));
        assert_eq!(decode(&mut &[0xc0, 0, 0][..]), Err(VarintError::Truncated { needed: 8 }));
    }

    proptest! {
        #[test]
        fn round_trips(value in 0..=VARINT_MAX, tail in proptest::collection::vec(any::<u8>(), 0..4)) {
            let mut wire = Vec::new();
            encode(value, &mut wire);
            wire.extend_from_slice(&tail);
            let mut input = &wire[..];
            prop_assert_eq!(decode(&mut input), Ok(value));
            prop_assert_eq!(input, &tail[..]);
        }

        #[test]
        fn what_decodes_encodes_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
            let mut input = &bytes[..];
            if let Ok(value) = decode(&mut input) {
                let mut out = Vec::new();
                encode(value, &mut out);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - input.len()]);
            }
        }
    }
}

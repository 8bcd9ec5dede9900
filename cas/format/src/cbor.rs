//! Deterministic CBOR: encode once, and accept only what encodes to the same bytes.

use minicbor::{Decode, Encode};

use crate::DecodeError;

/// Encodes a value. Writing to memory cannot fail, so neither can this.
///
/// # Panics
/// Never.
#[must_use]
pub fn encode<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    minicbor::encode(value, &mut bytes).expect("a Vec takes every write");
    bytes
}

/// Decodes a value of at most `limit` bytes and proves that the bytes are its one deterministic encoding: unknown
/// fields, long forms, indefinite lengths, double keys and trailing bytes all encode differently and are refused.
///
/// Memory is bounded by a constant times `limit`: no list is allocated by its claimed length.
///
/// # Errors
/// [`DecodeError`] says which rule the bytes break.
pub fn decode<'b, T>(what: &'static str, bytes: &'b [u8], limit: u64) -> Result<T, DecodeError>
where
    T: Encode<()> + Decode<'b, ()>,
{
    let len = bytes.len() as u64;
    if len > limit {
        return Err(DecodeError::TooLong { what, len, limit });
    }
    let mut decoder = minicbor::Decoder::new(bytes);
    let value: T = decoder.decode().map_err(|source| DecodeError::Cbor { what, detail: source.to_string() })?;
    if decoder.position() != bytes.len() || encode(&value) != bytes {
        return Err(DecodeError::NotCanonical { what });
    }
    Ok(value)
}

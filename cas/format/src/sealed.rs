//! Small whole objects: `[magic: 8 B][CBOR][BLAKE3 of magic and CBOR: 32 B]`. The last byte of the magic is the version,
//! an ASCII digit.

use minicbor::{Decode, Encode};

use crate::{DecodeError, Digest, cbor};

/// Bytes around the CBOR.
const OVERHEAD: usize = 8 + Digest::LEN;

/// Encodes and seals a value under its magic.
pub(crate) fn seal<T: Encode<()>>(magic: &[u8; 8], value: &T) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&cbor::encode(value));
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

/// Opens a sealed object of at most `limit` bytes: length, checksum, magic, version, then the CBOR.
pub(crate) fn open<'b, T>(what: &'static str, magic: &[u8; 8], bytes: &'b [u8], limit: u64) -> Result<T, DecodeError>
where
    T: Encode<()> + Decode<'b, ()>,
{
    let len = bytes.len() as u64;
    if len > limit {
        return Err(DecodeError::TooLong { what, len, limit });
    }
    if bytes.len() < OVERHEAD {
        return Err(DecodeError::Truncated { what, needed: OVERHEAD as u64, len });
    }
    let (sealed, digest) = bytes.split_at(bytes.len() - Digest::LEN);
    if Digest::of(sealed).as_bytes() != digest {
        return Err(DecodeError::Checksum { what });
    }
    let (found, body) = sealed.split_at(magic.len());
    let at = magic.len() - 1;
    if found[..at] != magic[..at] {
        return Err(DecodeError::Magic { what });
    }
    if found[at] != magic[at] {
        let [found, supported] = [found[at], magic[at]].map(|digit| digit.wrapping_sub(b'0'));
        return Err(DecodeError::Version { what, found, supported });
    }
    cbor::decode(what, body, limit)
}

//! Maps of texts in the one order that RFC 8949 §4.2.1 allows.

use std::collections::BTreeMap;

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};

/// Writes the entries by the bytes of their encoded keys. Those begin with the length: shorter keys come first.
pub(crate) fn encode<C, W: Write>(
    labels: &BTreeMap<String, String>,
    e: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), encode::Error<W::Error>> {
    let mut entries: Vec<_> = labels.iter().collect();
    // Stable: keys of one length stay in byte order.
    entries.sort_by_key(|(key, _)| key.len());
    e.map(entries.len() as u64)?;
    for (key, value) in entries {
        e.str(key)?.str(value)?;
    }
    e.ok()
}

/// Reads a map in any order; encoding it again proves that it was the right one.
pub(crate) fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<BTreeMap<String, String>, decode::Error> {
    d.decode_with(ctx)
}

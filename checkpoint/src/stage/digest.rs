//! BLAKE3 of one long stretch of memory with several threads.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{Hash, Hasher};
use forebay_cas::numbers::{index, length};
use forebay_cas::sync::Mutex;
use forebay_cas::task;

/// Bytes that one thread hashes at a time, a subtree of BLAKE3's tree.
const PART_BYTES: u64 = 4 << 20;

/// BLAKE3 of `bytes`, the same as [`blake3::hash`].
pub(super) fn hash(bytes: &[u8], threads: usize) -> Hash {
    if length(bytes.len()) <= PART_BYTES || threads < 2 {
        return blake3::hash(bytes);
    }
    let mut parts = Vec::new();
    split(0, length(bytes.len()), &mut parts);
    let values = Mutex::new(vec![ChainingValue::default(); parts.len()]);
    let next = Mutex::new(0..parts.len());
    let work = || {
        loop {
            let Some(number) = next.lock().next() else { return };
            let (offset, len) = parts[number];
            let part = &bytes[index(offset)..index(offset + len)];
            let value = Hasher::new().set_input_offset(offset).update(part).finalize_non_root();
            values.lock()[number] = value;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(parts.len())).map(|_| task::spawn_scoped(scope, "hash", work)).collect();
        threads.into_iter().for_each(task::join);
    });
    let values = values.into_inner();
    let (left, right) = values.split_at(parts_of(left_subtree_len(length(bytes.len()))));
    let rest = length(bytes.len()) - left_subtree_len(length(bytes.len()));
    merge_subtrees_root(&merge(left, length(bytes.len()) - rest), &merge(right, rest), Mode::Hash)
}

/// Lists subtrees of at most [`PART_BYTES`] in order.
fn split(offset: u64, len: u64, parts: &mut Vec<(u64, u64)>) {
    if len <= PART_BYTES {
        parts.push((offset, len));
        return;
    }
    let left = left_subtree_len(len);
    split(offset, left, parts);
    split(offset + left, len - left, parts);
}

/// Parts of a subtree of so many bytes: all but the last are whole, since the left side is always a power of two.
fn parts_of(len: u64) -> usize {
    index(len.div_ceil(PART_BYTES))
}

/// Joins the values of a subtree's parts.
fn merge(values: &[ChainingValue], len: u64) -> ChainingValue {
    if len <= PART_BYTES {
        return values[0];
    }
    let left_len = left_subtree_len(len);
    let (left, right) = values.split_at(parts_of(left_len));
    merge_subtrees_non_root(&merge(left, left_len), &merge(right, len - left_len), Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_blake3_at_every_kind_of_length() {
        let mut bytes = vec![0; 40 << 20];
        Hasher::new().update(b"digest").finalize_xof().fill(&mut bytes);
        let part = index(PART_BYTES);
        let around = [0, 1, 2, 3, 4, 5, 7, 8, 9].map(|parts| parts * part);
        for len in around.into_iter().flat_map(|len| [len.saturating_sub(1), len, len + 1, len + 1025]) {
            for threads in [1, 3] {
                assert_eq!(hash(&bytes[..len], threads), blake3::hash(&bytes[..len]), "{len} bytes, {threads} threads");
            }
        }
    }
}

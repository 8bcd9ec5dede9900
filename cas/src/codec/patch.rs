//! A chunk as pieces of another one: which pieces, and back.
//!
//! Most edits leave a chunk with a long prefix and a long suffix of its base. What lies between is looked up in a table of
//! the base's blocks by a rolling hash, as rsync and xdelta do. Source: Tridgell and Mackerras, "The rsync algorithm",
//! TR-CS-96-05, 1996.

use bytes::{Buf, BufMut};

use crate::numbers::index;

/// Bytes of one copy in a payload.
const COPY_LEN: usize = 12;
/// Bytes before the copies.
const HEAD_LEN: usize = 8;
/// Pieces shorter than this are not looked for: a copy costs twelve bytes, and short ones match by chance.
const BLOCK: usize = 32;
/// Multiplier of the rolling hash: odd, with its bits spread evenly (2^64 / golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// A slot of the table that holds no block.
const FREE: u32 = u32::MAX;

/// A piece of the base, and how many literal bytes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copy {
    from: u32,
    len: u32,
    literals: u32,
}

/// Finds pieces of a base in other bytes. Holds its table; one a thread.
#[derive(Debug, Default)]
pub(super) struct Differ {
    copies: Vec<Copy>,
    literals: Vec<u8>,
    table: Vec<u32>,
    shift: u32,
}

impl Differ {
    /// Describes `plain` by pieces of `base`. Both are at most a chunk long.
    pub(super) fn diff(&mut self, base: &[u8], plain: &[u8]) {
        self.copies.clear();
        self.literals.clear();
        let prefix = common_prefix(base, plain);
        let suffix = common_suffix(&base[prefix..], &plain[prefix..]);
        let middle = &plain[prefix..plain.len() - suffix];
        self.copy(0, prefix);
        if middle.len() < BLOCK || base.len() < BLOCK {
            self.literal(middle);
        } else {
            self.middle(base, middle);
        }
        self.copy(base.len() - suffix, suffix);
    }

    /// Bytes of the payload before the literals.
    pub(super) fn head_len(&self) -> usize {
        HEAD_LEN + self.copies.len() * COPY_LEN
    }

    /// What is not in the base.
    pub(super) fn literals(&self) -> &[u8] {
        &self.literals
    }

    /// Takes the literals out, for who needs them beside other memory of its own; [`Self::give_back`] keeps the memory.
    pub(super) fn take_literals(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.literals)
    }

    /// Memory to be used again.
    pub(super) fn give_back(&mut self, literals: Vec<u8>) {
        self.literals = literals;
    }

    /// Appends everything but the literals.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        out.put_u32_le(narrow(self.copies.len()));
        out.put_u32_le(narrow(self.literals.len()));
        for copy in &self.copies {
            out.put_u32_le(copy.from);
            out.put_u32_le(copy.len);
            out.put_u32_le(copy.literals);
        }
    }

    /// Looks every position of `middle` up in a table of the base's blocks.
    fn middle(&mut self, base: &[u8], middle: &[u8]) {
        self.fill_table(base);
        // What is before this has been described.
        let mut done = 0;
        let mut at = 0;
        let mut hash = hash_of(&middle[..BLOCK]);
        loop {
            let found = self.look_up(base, middle, at, hash);
            match found {
                Some(from) => {
                    let back = common_suffix(&base[..from], &middle[done..at]);
                    let ahead = common_prefix(&base[from + BLOCK..], &middle[at + BLOCK..]);
                    self.literal(&middle[done..at - back]);
                    self.copy(from - back, back + BLOCK + ahead);
                    done = at + BLOCK + ahead;
                    at = done;
                    match middle.get(at..at + BLOCK) {
                        Some(block) => hash = hash_of(block),
                        None => break,
                    }
                }
                None => {
                    let Some(next) = middle.get(at + BLOCK) else { break };
                    hash = roll(hash, middle[at], *next);
                    at += 1;
                }
            }
        }
        self.literal(&middle[done..]);
    }

    /// The first place of each block of the base that the table has room for.
    fn fill_table(&mut self, base: &[u8]) {
        let blocks = base.len() / BLOCK;
        let slots = (blocks * 2).next_power_of_two().max(2);
        self.shift = 64 - slots.trailing_zeros();
        self.table.clear();
        self.table.resize(slots, FREE);
        for (number, block) in base.chunks_exact(BLOCK).enumerate() {
            let slot = self.slot(hash_of(block));
            // The first of equal blocks: the piece can only be longer from there.
            if self.table[slot] == FREE {
                self.table[slot] = narrow(number * BLOCK);
            }
        }
    }

    fn look_up(&self, base: &[u8], middle: &[u8], at: usize, hash: u64) -> Option<usize> {
        let from = self.table[self.slot(hash)];
        if from == FREE {
            return None;
        }
        let from = index(from.into());
        (base[from..from + BLOCK] == middle[at..at + BLOCK]).then_some(from)
    }

    fn slot(&self, hash: u64) -> usize {
        index(hash.wrapping_mul(SPREAD) >> self.shift)
    }

    fn copy(&mut self, from: usize, len: usize) {
        if len > 0 {
            self.copies.push(Copy { from: narrow(from), len: narrow(len), literals: 0 });
        }
    }

    fn literal(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.copies.is_empty() {
            self.copies.push(Copy { from: 0, len: 0, literals: 0 });
        }
        let last = self.copies.last_mut().expect("one has just been put there");
        last.literals += narrow(bytes.len());
        self.literals.extend_from_slice(bytes);
    }
}

/// A payload taken apart, every number of it checked against the others.
#[derive(Debug)]
pub(super) struct Patch<'p> {
    copies: &'p [u8],
    /// Length of the literals in bytes.
    pub(super) literal_len: usize,
    /// The literals as they are stored.
    pub(super) stored_literals: &'p [u8],
}

impl<'p> Patch<'p> {
    /// Reads a payload that makes `plain_len` bytes; `None` if it makes any other number, or is cut short. Allocates
    /// nothing.
    pub(super) fn decode(payload: &'p [u8], plain_len: usize) -> Option<Self> {
        let (mut head, rest) = payload.split_at_checked(HEAD_LEN)?;
        let count = index(head.get_u32_le().into());
        let literal_len = index(head.get_u32_le().into());
        let (copies, stored_literals) = rest.split_at_checked(count.checked_mul(COPY_LEN)?)?;
        let (mut made, mut literals) = (0_u64, 0_u64);
        for copy in copies.chunks_exact(COPY_LEN).map(read_copy) {
            made += u64::from(copy.len) + u64::from(copy.literals);
            literals += u64::from(copy.literals);
        }
        let fits = made == plain_len as u64 && literals == literal_len as u64 && stored_literals.len() <= literal_len;
        fits.then_some(Self { copies, literal_len, stored_literals })
    }

    /// Appends the plain bytes to `plain`; `None` if a piece is not in the base. `literals` has [`Self::literal_len`]
    /// bytes.
    pub(super) fn apply(&self, base: &[u8], mut literals: &[u8], plain: &mut Vec<u8>) -> Option<()> {
        for copy in self.copies.chunks_exact(COPY_LEN).map(read_copy) {
            let from = index(copy.from.into());
            plain.extend_from_slice(base.get(from..)?.get(..index(copy.len.into()))?);
            let (next, rest) = literals.split_at_checked(index(copy.literals.into()))?;
            plain.extend_from_slice(next);
            literals = rest;
        }
        Some(())
    }
}

fn read_copy(mut bytes: &[u8]) -> Copy {
    Copy { from: bytes.get_u32_le(), len: bytes.get_u32_le(), literals: bytes.get_u32_le() }
}

/// A length within a chunk.
fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("chunks are far below 4 GiB")
}

fn hash_of(block: &[u8]) -> u64 {
    block.iter().fold(0, |hash, byte| push(hash, *byte))
}

/// Takes a byte in: `hash * M + byte`.
const fn push(hash: u64, byte: u8) -> u64 {
    hash.wrapping_mul(MULTIPLIER).wrapping_add(byte as u64 + 1)
}

/// Moves the window on by one byte.
const fn roll(hash: u64, out: u8, next: u8) -> u64 {
    push(hash, next).wrapping_sub((out as u64 + 1).wrapping_mul(LEAVING))
}

/// Multiplier of the polynomial, any odd number with high bits set.
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;
/// [`MULTIPLIER`] to the power of [`BLOCK`]: what the oldest byte has been multiplied with when it leaves.
const LEAVING: u64 = {
    let (mut power, mut left) = (1_u64, BLOCK);
    while left > 0 {
        power = power.wrapping_mul(MULTIPLIER);
        left -= 1;
    }
    power
};

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 64;
    let len = one.len().min(other.len());
    let equal = one[..len].chunks(STEP).zip(other[..len].chunks(STEP)).take_while(|(one, other)| one == other).count();
    let start = (equal * STEP).min(len);
    start + one[start..len].iter().zip(&other[start..len]).take_while(|(one, other)| one == other).count()
}

fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 64;
    let len = one.len().min(other.len());
    let (one, other) = (&one[one.len() - len..], &other[other.len() - len..]);
    let equal = one.rchunks(STEP).zip(other.rchunks(STEP)).take_while(|(one, other)| one == other).count();
    let end = len - (equal * STEP).min(len);
    len - end + one[..end].iter().rev().zip(other[..end].iter().rev()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn payload(base: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut differ = Differ::default();
        differ.diff(base, plain);
        let mut out = Vec::new();
        differ.encode_head(&mut out);
        assert_eq!(out.len(), differ.head_len());
        out.extend_from_slice(differ.literals());
        out
    }

    fn apply(base: &[u8], payload: &[u8], plain_len: usize) -> Option<Vec<u8>> {
        let patch = Patch::decode(payload, plain_len)?;
        let mut plain = Vec::new();
        patch.apply(base, patch.stored_literals, &mut plain)?;
        Some(plain)
    }

    /// Edits of the kinds that users make: overwritten, inserted, removed, moved, repeated.
    fn edited(base: &[u8], seed: u64, edits: usize) -> Vec<u8> {
        let mut draws = noise(seed, edits * 12);
        let mut plain = base.to_vec();
        for draw in draws.chunks_exact_mut(12) {
            let number = |at: usize| usize::from(u16::from_le_bytes([draw[at], draw[at + 1]]));
            let (at, len) = (number(1) * plain.len().max(1) / 65536, number(3) % 700);
            let end = (at + len).min(plain.len());
            match draw[0] % 5 {
                0 => plain[at..end].copy_from_slice(&noise(seed ^ 9, 700)[..end - at]),
                1 => drop(plain.splice(at..at, noise(seed ^ 7, len))),
                2 => drop(plain.drain(at..end)),
                3 => {
                    let moved: Vec<u8> = plain.drain(at..end).collect();
                    let to = number(5) * plain.len() / 65536;
                    plain.splice(to..to, moved);
                }
                _ => {
                    let again = plain[at..end].to_vec();
                    plain.splice(end..end, again);
                }
            }
        }
        plain
    }

    #[test]
    fn what_is_put_together_is_what_was_taken_apart() {
        for seed in 0..400 {
            let base = noise(seed, index(seed * seed * 7 % 50_000));
            let plain = edited(&base, seed, index(seed % 9));
            let payload = payload(&base, &plain);
            assert_eq!(apply(&base, &payload, plain.len()).as_deref(), Some(&plain[..]), "seed {seed}");
        }
        // Bytes that repeat, where every block hashes to the same slot.
        for (base, plain) in [(vec![0; 5000], vec![0; 9000]), (vec![7; 100], b"7".repeat(64)), (vec![], vec![1, 2, 3])]
        {
            assert_eq!(apply(&base, &payload(&base, &plain), plain.len()).as_deref(), Some(&plain[..]));
        }
    }

    #[test]
    fn small_edits_make_small_patches() {
        let base = noise(1, 300_000);
        for seed in 0..50 {
            let plain = edited(&base, seed, 4);
            let bytes = payload(&base, &plain).len();
            // Four edits bring at most 2,800 bytes and a handful of copies.
            assert!(bytes <= 2_800 + 40 * COPY_LEN, "seed {seed}: {bytes} bytes");
        }
        let unrelated = noise(2, 300_000);
        assert_eq!(payload(&base, &unrelated).len(), HEAD_LEN + COPY_LEN + unrelated.len());
    }

    #[test]
    fn payloads_that_contradict_themselves_are_refused() {
        let base = noise(1, 1000);
        let plain = edited(&base, 3, 3);
        let good = payload(&base, &plain);
        assert!(apply(&base, &good, plain.len()).is_some());
        assert!(apply(&base, &good, plain.len() + 1).is_none());
        assert!(apply(&base[..base.len() - 1], &good, plain.len()).is_none());
        assert!((0..good.len()).all(|len| apply(&base, &good[..len], plain.len()) != Some(plain.clone())));
        let mut many = good.clone();
        many[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Patch::decode(&many, plain.len()).is_none());
        for at in [8, 12, 16] {
            let mut far = good.clone();
            far[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(apply(&base, &far, plain.len()).is_none(), "field at {at}");
        }
    }

    #[test]
    fn prefixes_and_suffixes_end_at_the_first_difference() {
        let one = noise(5, 300);
        for at in 0..300 {
            let mut other = one.clone();
            other[at] ^= 1;
            assert_eq!((common_prefix(&one, &other), common_suffix(&one, &other)), (at, 299 - at));
        }
        assert_eq!((common_prefix(&one, &one[..9]), common_suffix(&one, &one[291..])), (9, 9));
    }
}

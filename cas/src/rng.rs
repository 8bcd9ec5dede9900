//! The only place that draws randomness: one seed a run, split by name into independent streams.
#![allow(clippy::disallowed_methods, reason = "this module implements what the lint points to")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

use crate::sync::Mutex;

/// A seed that is split by name, so that one more draw in one stream shifts no other.
///
/// Clones share what has been handed out: no two streams of one seed ever draw the same values, and names made from them
/// are never used twice.
#[derive(Debug, Clone)]
pub struct Seed {
    seed: [u8; 32],
    /// Streams handed out so far, by name.
    handed_out: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Seed {
    /// A seed from the operating system.
    ///
    /// # Panics
    /// If the operating system has no randomness to give; nothing safe can be named then.
    #[must_use]
    pub fn from_os() -> Self {
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).expect("the operating system gives randomness");
        Self { seed, handed_out: Arc::default() }
    }

    /// A fixed seed, for tests and simulation.
    #[must_use]
    pub fn fixed(seed: u64) -> Self {
        Self { seed: *blake3::hash(&seed.to_le_bytes()).as_bytes(), handed_out: Arc::default() }
    }

    /// The next stream with this name.
    #[must_use]
    pub fn stream(&self, name: &str) -> Random {
        let mut handed_out = self.handed_out.lock();
        let number = handed_out.entry(name.to_owned()).or_default();
        let mut hasher = blake3::Hasher::new_keyed(&self.seed);
        hasher.update(&number.to_le_bytes()).update(name.as_bytes());
        *number += 1;
        Random { rng: Mutex::new(StdRng::from_seed(*hasher.finalize().as_bytes())) }
    }
}

/// One stream of randomness, shared by reference.
#[derive(Debug)]
pub struct Random {
    rng: Mutex<StdRng>,
}

impl Random {
    /// Random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.lock().fill_bytes(&mut bytes);
        bytes
    }

    /// A number below `bound`, which must not be 0. The bias for bounds far below 2^64 is beyond measuring.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        u64::from_le_bytes(self.bytes()) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_seed_and_name_only() {
        let draw = |seed: u64, name: &str| Seed::fixed(seed).stream(name).bytes::<16>();
        assert_eq!(draw(1, "packs"), draw(1, "packs"));
        assert_ne!(draw(1, "packs"), draw(1, "nonces"));
        assert_ne!(draw(1, "packs"), draw(2, "packs"));
    }

    #[test]
    fn no_stream_is_handed_out_twice() {
        let seed = Seed::fixed(1);
        let first = seed.stream("packs").bytes::<16>();
        assert_ne!(first, seed.stream("packs").bytes::<16>());
        assert_ne!(first, seed.clone().stream("packs").bytes::<16>());
    }
}

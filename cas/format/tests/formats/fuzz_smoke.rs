//! A short fuzz of every decoder: the same inputs in every run.

use crate::bodies::TARGETS;
use crate::samples::samples;

const ROUNDS: usize = 40_000;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap_or(0) % bound
    }
}

fn mutate(random: &mut Random, data: &mut Vec<u8>) {
    match random.below(6) {
        0 => data.truncate(random.below(data.len() + 1)),
        1 => {
            let at = random.below(data.len() + 1);
            data.insert(at, [0, 1, 0x7f, 0x80, 0xff, 0x9f, 0xbf, 0x5f][random.below(8)]);
        }
        2 if data.len() > 8 => {
            let at = random.below(data.len() - 8);
            data[at..at + 8].copy_from_slice(&[0xff; 8]);
        }
        3 if !data.is_empty() => {
            let (from, to) = (random.below(data.len()), random.below(data.len()));
            data.swap(from, to);
        }
        4 if !data.is_empty() => {
            let (at, len) = (random.below(data.len()), random.below(64));
            let copy = data[at..data.len().min(at + len)].to_vec();
            let to = random.below(data.len());
            data.splice(to..to, copy);
        }
        _ if !data.is_empty() => {
            let at = random.below(data.len());
            data[at] = data[at].wrapping_add(1 << random.below(8));
        }
        _ => {}
    }
}

#[test]
fn a_short_fuzz_of_every_decoder() {
    let samples = samples();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..ROUNDS {
        let sample = &samples[round % samples.len()];
        let mut data = sample.bytes.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut random, &mut data);
        }
        for (name, body) in TARGETS {
            if name == sample.target || round % 16 == 0 {
                body(&data);
            }
        }
    }
}

#[test]
fn every_body_takes_the_samples_and_what_is_no_object() {
    for (name, body) in TARGETS {
        for sample in samples() {
            body(&sample.bytes);
        }
        for len in [0, 1, 7, 8, 31, 32, 43, 44, 45, 127, 128, 129, 1000] {
            for byte in [0, b'a', 0x80, 0x9f, 0xff] {
                body(&vec![byte; len]);
            }
        }
        assert!(name == "name" || samples().iter().any(|sample| sample.target == name), "{name} has a sample");
    }
    let (_, name) = TARGETS.iter().find(|(name, _)| *name == "name").expect("the target of names");
    for text in ["a", "data/one@12", "a@0123ABCD", "a@", "@", "a@99999999999999999999", "é@1", "..", "a\\..\\b"] {
        name(text.as_bytes());
    }
}

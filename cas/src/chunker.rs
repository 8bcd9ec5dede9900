//! Where file content is cut.

use std::fmt::Debug;

use fastcdc::v2020;
use forebay_format::ChunkerParams;

use crate::numbers::index;

/// Named chunk sizes. One profile a repository, chosen when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkProfile {
    /// Name on the command line.
    pub name: &'static str,
    /// The sizes.
    pub params: ChunkerParams,
}

const fn profile(name: &'static str, min_kib: u32, avg_kib: u32, max_kib: u32) -> ChunkProfile {
    let params = ChunkerParams {
        min_bytes: min_kib << 10,
        avg_bytes: avg_kib << 10,
        max_bytes: max_kib << 10,
        normalization: 1,
    };
    ChunkProfile { name, params }
}

/// All profiles, the default first; named by their average size.
pub const PROFILES: [ChunkProfile; 3] =
    [profile("256k", 64, 256, 1024), profile("64k", 16, 64, 256), profile("512k", 128, 512, 2048)];

/// A text is no chunk profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no chunk profile: write {}, or MIN/AVG/MAX[/LEVEL] in KiB: the average a power of two up to 4096, MIN below and MAX above it \
     and at most 16384, LEVEL of normalisation 0 to 3 (1 if left out)",
    PROFILES.map(|profile| profile.name).join(", ")
)]
pub struct ProfileError;

/// Reads the name of a profile, or sizes in KiB: `64/256/1024` or, with a level of normalisation, `64/256/1024/2`.
///
/// # Errors
/// [`ProfileError`] if it is neither, or the chunker cannot have such sizes.
pub fn parse_profile(text: &str) -> Result<ChunkerParams, ProfileError> {
    if let Some(profile) = PROFILES.iter().find(|profile| profile.name == text) {
        return Ok(profile.params);
    }
    let numbers = text.split('/').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
    let (sizes, normalization) = match numbers.as_deref() {
        Ok([min, avg, max]) => ([*min, *avg, *max], 1),
        Ok([min, avg, max, level]) => ([*min, *avg, *max], u8::try_from(*level).unwrap_or(u8::MAX)),
        _ => return Err(ProfileError),
    };
    let [min_bytes, avg_bytes, max_bytes] = sizes.map(|kib| kib.saturating_mul(1 << 10));
    let params = ChunkerParams { min_bytes, avg_bytes, max_bytes, normalization };
    if params.is_valid() { Ok(params) } else { Err(ProfileError) }
}

/// Finds cut points. The same bytes give the same cuts on every machine.
pub trait Chunker: Send + Sync + Debug {
    /// Bytes that [`Self::cut`] wants to see unless the data ends before.
    fn window(&self) -> usize;

    /// Length of the first chunk of `data`, which is not empty and holds [`Self::window`] bytes or all there are up to the
    /// end of the segment. At least 1, at most `data.len()`.
    fn cut(&self, data: &[u8]) -> usize;
}

/// FastCDC 2020 with the public gear table. Source: Xia et al., "The Design of Fast Content-Defined Chunking for Data
/// Deduplication Based Storage Systems", IEEE TPDS 31(9), 2020.
#[derive(Debug, Clone, Copy)]
pub struct FastCdc {
    min: usize,
    avg: usize,
    max: usize,
    mask_s: u64,
    mask_l: u64,
}

impl FastCdc {
    /// A chunker for sizes that [`ChunkerParams::is_valid`] has passed.
    #[must_use]
    pub fn new(params: &ChunkerParams) -> Self {
        let level = match params.normalization {
            0 => v2020::Normalization::Level0,
            1 => v2020::Normalization::Level1,
            2 => v2020::Normalization::Level2,
            _ => v2020::Normalization::Level3,
        };
        let avg = index(params.avg_bytes.into());
        let (mask_s, mask_l) = v2020::select_masks(avg, level);
        Self { min: index(params.min_bytes.into()), avg, max: index(params.max_bytes.into()), mask_s, mask_l }
    }
}

impl Chunker for FastCdc {
    fn window(&self) -> usize {
        self.max
    }

    fn cut(&self, data: &[u8]) -> usize {
        let window = &data[..data.len().min(self.max)];
        let (mask_s_ls, mask_l_ls) = (self.mask_s << 1, self.mask_l << 1);
        let (_, len) = v2020::cut(window, self.min, self.avg, self.max, self.mask_s, self.mask_l, mask_s_ls, mask_l_ls);
        assert!(len > 0 && len <= window.len(), "a cut lies inside the window");
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    /// FastCDC 2020 as the paper writes it: one byte at a time, no tables shifted in advance. Rolling two bytes leaves one
    /// trace: where the data ends behind an odd number of bytes, no cut is looked for at the last one.
    fn slow_cut(params: &ChunkerParams, data: &[u8]) -> usize {
        let (min, avg, max) = (params.min_bytes as usize, params.avg_bytes as usize, params.max_bytes as usize);
        let bits = avg.ilog2();
        let mask = |bits: u32| v2020::MASKS[bits as usize];
        let (strict, loose) =
            (mask(bits + u32::from(params.normalization)), mask(bits - u32::from(params.normalization)));
        let end = data.len().min(max);
        let center = end.min(avg);
        let (gear, _) = v2020::get_gear_with_seed(0);
        let mut hash = 0_u64;
        for at in min..end - end % 2 {
            hash = (hash << 1).wrapping_add(gear[usize::from(data[at])]);
            let mask = if at < center { strict } else { loose };
            if hash & mask == 0 {
                return at;
            }
        }
        end
    }

    fn cuts(data: &[u8], cut: impl Fn(&[u8]) -> usize) -> Vec<usize> {
        let mut lens = Vec::new();
        let mut rest = data;
        while !rest.is_empty() {
            let len = cut(rest);
            lens.push(len);
            rest = &rest[len..];
        }
        lens
    }

    #[test]
    fn profiles_have_names_or_sizes() {
        assert_eq!(parse_profile("512k"), Ok(PROFILES[2].params));
        assert_eq!(parse_profile("64/256/1024"), Ok(PROFILES[0].params));
        let level = ChunkerParams { normalization: 3, ..PROFILES[1].params };
        assert_eq!(parse_profile("16/64/256/3"), Ok(level));
        for wrong in [
            "",
            "1k",
            "64/256",
            "64/256/1024/4",
            "64/200/1024",
            "256/256/1024",
            "64/256/128",
            "64/256/1024/1/1",
            "-64/256/1024",
            "4294967295/4294967295/4294967295",
        ] {
            assert_eq!(parse_profile(wrong), Err(ProfileError), "{wrong}");
        }
    }

    #[test]
    fn cuts_are_those_of_the_paper() {
        for profile in PROFILES {
            let chunker = FastCdc::new(&profile.params);
            for seed in 0..3 {
                let data = noise(seed, 12_345_678);
                let fast = cuts(&data, |rest| chunker.cut(rest));
                assert_eq!(fast, cuts(&data, |rest| slow_cut(&profile.params, rest)), "{}", profile.name);
                let (last, others) = fast.split_last().unwrap();
                let (min, max) = (profile.params.min_bytes as usize, profile.params.max_bytes as usize);
                assert!(*last <= max && others.iter().all(|len| (min..=max).contains(len)));
            }
        }
    }

    #[test]
    fn golden_cut_points() {
        // A change here changes every id of every file: the crate is pinned for that reason. The numbers are checked by
        // scripts/check_vectors.py too, which shares no code with this.
        let data = noise(7, 4_000_000);
        let golden: Vec<String> = PROFILES
            .iter()
            .map(|profile| {
                let chunker = FastCdc::new(&profile.params);
                let lens: Vec<String> = cuts(&data, |rest| chunker.cut(rest)).iter().map(ToString::to_string).collect();
                format!("{} {}\n", profile.name, lens.join(" "))
            })
            .collect();
        assert_eq!(golden.concat(), include_str!("../tests/vectors/cut_points.txt"));
    }

    #[test]
    fn the_ends_of_files_are_cut_as_the_paper_does() {
        for profile in PROFILES {
            let params = &profile.params;
            let chunker = FastCdc::new(params);
            let data = noise(11, params.max_bytes as usize + 2);
            let sizes = [params.min_bytes, params.avg_bytes, params.max_bytes].map(|size| size as usize);
            // The file ends around each size, and around a cut itself.
            let mut ends: Vec<usize> = sizes.iter().flat_map(|size| size - 2..=size + 2).collect();
            for start in (0..8).map(|step| step * 1_001) {
                let cut = start + chunker.cut(&data[start..]);
                ends.extend(cut - 2..=data.len().min(cut + 3));
                for end in &ends {
                    let data = &data[start..*end];
                    assert_eq!(chunker.cut(data), slow_cut(params, data), "{} {start}..{end}", profile.name);
                }
            }
        }
    }

    #[test]
    fn all_sizes_that_are_valid_have_masks() {
        let (mut valid, mut bits) = (0, 0);
        let data = noise(13, 100_000);
        for (min_bytes, avg, max_bytes) in
            (0..32).flat_map(|avg| [(64, avg, 16 << 20), (64, avg, 1024), (1 << 20, avg, 16 << 20)])
        {
            for normalization in 0..=4 {
                let params = ChunkerParams { min_bytes, avg_bytes: 1 << avg, max_bytes, normalization };
                if params.is_valid() {
                    let chunker = FastCdc::new(&params);
                    assert!(chunker.mask_s.count_ones() > 0 && chunker.mask_l.count_ones() > 0, "{params:?}");
                    assert_eq!(chunker.cut(&data), slow_cut(&params, &data), "{params:?}");
                    (valid, bits) = (valid + 1, bits | 1_u32 << avg);
                }
            }
        }
        // Averages from 256 bytes to 4 MiB, and more than one way to have most of them.
        assert_eq!((bits, valid > 60), (0x007f_ff00, true), "{valid} valid sizes");
    }

    #[test]
    fn a_cut_depends_on_the_window_alone() {
        let chunker = FastCdc::new(&PROFILES[1].params);
        let data = noise(9, 3_000_000);
        for start in (0..1_000_000).step_by(77_777) {
            let whole = chunker.cut(&data[start..]);
            assert_eq!(whole, chunker.cut(&data[start..start + chunker.window()]));
        }
        assert_eq!(chunker.cut(&[1]), 1);
        assert_eq!(chunker.cut(&vec![0; 3 * chunker.window()]), chunker.window());
    }
}

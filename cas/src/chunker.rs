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
        let (_, len) =
            v2020::cut(window, self.min, self.avg, self.max, self.mask_s, self.mask_l, mask_s_ls, mask_l_ls);
        assert!(len > 0 && len <= window.len(), "a cut lies inside the window");
        len
    }
}

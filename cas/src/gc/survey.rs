//! How much of each pack is alive, by the live segments as they lie in the origin.

use std::collections::BTreeMap;

use forebay_format::{LogState, PackId, Row, Segment};

use super::GcError;
use super::mark::{Best, Live};
use super::plan::PackUse;
use crate::numbers::{index, length};
use crate::repository::Repository;

/// All packs that live segments list. Numbers count in the order in which segments list them first.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) packs: Vec<PackUse>,
    numbers: BTreeMap<PackId, u32>,
    has_patches: bool,
}

impl Survey {
    /// Number of a pack, if a live segment lists it.
    pub(super) fn number(&self, pack: PackId) -> Option<u32> {
        self.numbers.get(&pack).copied()
    }

    /// Bytes of live frames.
    pub(super) fn live_bytes(&self) -> u64 {
        self.packs.iter().map(|pack| pack.live_bytes).sum()
    }

    /// Numbers of a segment's packs, and whether it is the first that lists them.
    fn enter(&mut self, segment: &Segment) -> Vec<(u32, bool)> {
        let Self { packs, numbers, .. } = self;
        let enter = |pack: &forebay_format::SegmentPack| {
            let known = packs.len();
            let number = *numbers.entry(pack.id).or_insert_with(|| {
                packs.push(PackUse { id: pack.id, len: pack.len, frame_bytes: 0, live_bytes: 0 });
                u32::try_from(known).expect("fewer than 2^32 packs")
            });
            (number, packs.len() > known)
        };
        segment.packs.iter().map(enter).collect()
    }

    /// Counts a frame for its pack, if it is the best of a live chunk so far.
    fn count(&mut self, row: &Row, pack: u32, live: &mut Live) {
        let header = &row.header;
        self.has_patches |= header.base.is_some();
        let Some(best) = live.get_mut(header.id) else { return };
        let len = u32::try_from(header.frame_len()).unwrap_or(u32::MAX);
        let found = Best { depth: header.depth, pack, len };
        if best.is_some_and(|best| (best.depth, best.pack) <= (found.depth, found.pack)) {
            return;
        }
        if let Some(before) = best.replace(found) {
            self.packs[index(before.pack.into())].live_bytes -= u64::from(before.len);
        }
        self.packs[index(pack.into())].live_bytes += u64::from(len);
    }
}

/// Finds the best frame of every live chunk. A pack that is kept keeps the bases of all patches in it, also of those that are
/// not alive: no patch ever lies in a listed pack without its base in one.
///
/// # Errors
/// [`GcError`] if a segment cannot be read, or a live chunk has no frame.
pub(super) fn survey(repository: &Repository, state: &LogState, live: &mut Live) -> Result<Survey, GcError> {
    loop {
        live.forget_places();
        let mut survey = Survey::default();
        for name in &state.segments {
            let segment = repository.segment(name)?;
            let numbers = survey.enter(&segment);
            for (row, pack) in &segment.rows {
                let (number, is_first) = numbers[index((*pack).into())];
                if is_first {
                    survey.packs[index(number.into())].frame_bytes += row.header.frame_len();
                }
                survey.count(row, number, live);
            }
        }
        let lost = live.lost();
        if lost > 0 {
            return Err(GcError::Lost { chunks: length(lost) });
        }
        let known = live.len();
        if survey.has_patches {
            mark_bases(repository, state, &survey, live)?;
        }
        if live.len() == known {
            return Ok(survey);
        }
    }
}

/// Adds the bases of all patches that lie in packs which something keeps.
fn mark_bases(repository: &Repository, state: &LogState, survey: &Survey, live: &mut Live) -> Result<(), GcError> {
    for name in &state.segments {
        let segment = repository.segment(name)?;
        for (row, pack) in &segment.rows {
            let number = survey.number(segment.packs[index((*pack).into())].id);
            let is_kept = number.is_some_and(|number| survey.packs[index(number.into())].live_bytes > 0);
            if is_kept && let Some(base) = row.header.base {
                live.insert_base(base);
            }
        }
    }
    Ok(())
}

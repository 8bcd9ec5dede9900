//! Which files of a folder will be wanted next, told from those that were.

use std::ops::Range;

use forebay_format::ChunkId;

/// Those who walk through folders, told apart by the part of a folder they are in. Pure: numbers in, numbers out.
///
/// Copying or hashing a tree of small files would otherwise ask the origin once for each of them.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    walks: Vec<Walk>,
    tick: u64,
}

#[derive(Debug)]
struct Walk {
    /// The part of a folder: a leaf of the manifest.
    leaf: ChunkId,
    /// Behind the last entry that was wanted.
    next: usize,
    /// Behind the last entry that was asked for in advance.
    asked: usize,
    window: u64,
    steps: u32,
    used: u64,
}

impl Neighbours {
    /// Takes note that an entry is wanted; returns the entries that should be read ahead. `size` is the bytes that
    /// reading an entry ahead takes, `None` behind the last entry.
    pub(crate) fn on_want(
        &mut self,
        leaf: ChunkId,
        at: usize,
        window_max: u64,
        size: impl Fn(usize) -> Option<u64>,
    ) -> Option<Range<usize>> {
        self.tick += 1;
        let tick = self.tick;
        let walk = self.walk_in(leaf, at, tick);
        walk.used = tick;
        if !(walk.next..walk.next + SKIP).contains(&at) {
            if at + SKIP < walk.next || at >= walk.next + SKIP {
                *walk = Walk { leaf, next: at + 1, asked: at + 1, window: 0, steps: 1, used: tick };
            }
            return None;
        }
        walk.next = at + 1;
        walk.steps = walk.steps.saturating_add(1);
        if walk.steps < STEPS_MIN || window_max == 0 {
            return None;
        }
        let from = walk.asked.max(walk.next);
        let sum = |entries: Range<usize>| entries.map_while(&size).sum::<u64>();
        let pending = sum(walk.next..from);
        if pending > walk.window / 2 {
            return None;
        }
        walk.window = (walk.window * 2).clamp(WINDOW_MIN.min(window_max), window_max);
        let (mut to, mut bytes) = (from, pending);
        while let Some(more) = size(to).filter(|more| bytes + more <= walk.window) {
            bytes += more;
            to += 1;
        }
        walk.asked = to;
        (to > from).then_some(from..to)
    }

    /// Takes back what [`Self::on_want`] returned and nobody reads ahead after all.
    pub(crate) fn not_asked(&mut self, leaf: ChunkId, entries: &Range<usize>) {
        for walk in self.walks.iter_mut().filter(|walk| walk.leaf == leaf && walk.asked == entries.end) {
            walk.asked = entries.start;
        }
    }

    fn walk_in(&mut self, leaf: ChunkId, at: usize, tick: u64) -> &mut Walk {
        let found = self.walks.iter().position(|walk| walk.leaf == leaf);
        let place = found.unwrap_or_else(|| {
            let new = Walk { leaf, next: at, asked: at, window: 0, steps: 0, used: tick };
            if self.walks.len() < WALKS_MAX {
                self.walks.push(new);
                return self.walks.len() - 1;
            }
            let oldest = self.walks.iter().enumerate().min_by_key(|(_, walk)| walk.used);
            let oldest = oldest.map_or(0, |(place, _)| place);
            self.walks[oldest] = new;
            oldest
        });
        &mut self.walks[place]
    }
}

/// Walks that are told apart.
const WALKS_MAX: usize = 32;
/// Files in order after which a walk is believed to go on so.
const STEPS_MIN: u32 = 2;
/// Files that a walk may leave out, such as folders and links.
const SKIP: usize = 8;
/// First window in bytes.
const WINDOW_MIN: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn leaf(number: u8) -> ChunkId {
        ChunkId::of(&[number])
    }

    /// A hundred files of 50 KiB.
    fn size(at: usize) -> Option<u64> {
        (at < 100).then_some(50 << 10)
    }

    #[test]
    fn a_walk_in_order_reads_each_neighbour_ahead_once() {
        let mut neighbours = Neighbours::default();
        let ahead: Vec<_> = (0..100).filter_map(|at| neighbours.on_want(leaf(1), at, MIB, size)).collect();
        assert_eq!(ahead.first().map(|range| range.start), Some(2));
        assert_eq!(ahead.last().map(|range| range.end), Some(100));
        assert!(ahead.windows(2).all(|pair| pair[0].end == pair[1].start), "{ahead:?}");
        assert!(ahead.iter().all(|range| range.len() as u64 * (50 << 10) <= MIB));
    }

    #[test]
    fn files_at_random_and_files_too_large_read_nothing_ahead() {
        let mut neighbours = Neighbours::default();
        for at in [50, 3, 97, 20, 70, 35, 85, 10, 60] {
            assert_eq!(neighbours.on_want(leaf(1), at, MIB, size), None);
        }
        let large = |at| (at < 100).then_some(4 * MIB);
        assert!((0..100).all(|at| neighbours.on_want(leaf(2), at, MIB, large).is_none()));
        assert!((0..100).all(|at| neighbours.on_want(leaf(3), at, 0, size).is_none()));
    }

    #[test]
    fn two_walks_are_told_apart_and_gaps_are_forgiven() {
        let mut neighbours = Neighbours::default();
        let mut ahead = [0, 0];
        for at in (0..100).step_by(2) {
            for (walk, count) in (0_u8..).zip(&mut ahead) {
                *count += neighbours.on_want(leaf(walk), at, MIB, size).map_or(0, |range| range.len());
            }
        }
        assert!(ahead.iter().all(|count| *count > 90), "{ahead:?}");
    }

    #[test]
    fn what_was_not_read_ahead_after_all_is_asked_for_again() {
        let mut neighbours = Neighbours::default();
        neighbours.on_want(leaf(1), 0, MIB, size);
        let range = neighbours.on_want(leaf(1), 1, MIB, size).unwrap();
        neighbours.not_asked(leaf(1), &range);
        assert_eq!(neighbours.on_want(leaf(1), 2, MIB, size).map(|range| range.start), Some(3));
    }
}

//! Which bytes of a file will be wanted next, told from those that were.

use std::ops::Range;

/// The readers of one file, told apart by where they are. Pure: offsets in, ranges out.
///
/// A reader counts as one that reads in order from its second step on. Then the window in front of it grows with each
/// step, up to a bound, and is filled again when half of it has been read.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    tick: u64,
}

#[derive(Debug, Clone)]
struct Stream {
    /// Behind the last byte that was read.
    next: u64,
    /// Behind the last byte that was asked for in advance.
    asked: u64,
    window: u64,
    steps: u32,
    used: u64,
}

impl Streams {
    /// Takes note of a read; returns what should be read ahead, `window_max` bytes at most.
    pub(crate) fn on_read(&mut self, read: &Range<u64>, size: u64, window_max: u64) -> Option<Range<u64>> {
        self.tick += 1;
        let tick = self.tick;
        let stream = self.stream_at(read, tick);
        stream.used = tick;
        if read.end > stream.next {
            stream.next = read.end;
            stream.steps = stream.steps.saturating_add(1);
        }
        if stream.steps < STEPS_MIN || window_max == 0 {
            return None;
        }
        let from = stream.asked.max(stream.next);
        if from - stream.next > stream.window / 2 || from >= size {
            return None;
        }
        stream.window = (stream.window * 2).clamp(WINDOW_MIN.min(window_max), window_max);
        let to = (stream.next + stream.window).min(size);
        if to <= from {
            return None;
        }
        stream.asked = to;
        Some(from..to)
    }

    /// Whether a read, already taken note of, belongs to a reader that reads in order.
    pub(crate) fn is_in_order(&self, read: &Range<u64>) -> bool {
        self.streams.iter().any(|stream| stream.next == read.end && stream.steps >= STEPS_MIN)
    }

    /// Takes back what [`Self::on_read`] returned and nobody reads ahead after all.
    pub(crate) fn not_asked(&mut self, range: &Range<u64>) {
        for stream in self.streams.iter_mut().filter(|stream| stream.asked == range.end) {
            stream.asked = range.start;
        }
    }

    /// The reader that this read belongs to, or a new one in place of the one that was silent for the longest time.
    fn stream_at(&mut self, read: &Range<u64>, tick: u64) -> &mut Stream {
        let near = |stream: &Stream| read.start <= stream.next + SKIP_BYTES && read.end + SKIP_BYTES >= stream.next;
        let found = self.streams.iter().position(near);
        let place = found.unwrap_or_else(|| {
            let new = Stream { next: read.start, asked: read.start, window: 0, steps: 0, used: tick };
            if self.streams.len() < STREAMS_MAX {
                self.streams.push(new);
                return self.streams.len() - 1;
            }
            let (oldest, _) =
                self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.used).expect("there are STREAMS_MAX");
            self.streams[oldest] = new;
            oldest
        });
        &mut self.streams[place]
    }
}

/// Readers of one file that are told apart.
const STREAMS_MAX: usize = 16;
/// Steps in order after which a reader is believed to go on so.
const STEPS_MIN: u32 = 2;
/// First window.
const WINDOW_MIN: u64 = 1 << 20;
/// A read this far from where a reader was still belongs to it: the kernel reads ahead itself, several requests at
/// once that arrive in any order.
const SKIP_BYTES: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const STEP: u64 = 128 << 10;

    /// Reads in order from `from` to `to`; returns what was read ahead.
    fn run(streams: &mut Streams, from: u64, to: u64, size: u64) -> Vec<Range<u64>> {
        (from / STEP..to / STEP)
            .filter_map(|step| streams.on_read(&(step * STEP..(step + 1) * STEP), size, 8 * MIB))
            .collect()
    }

    #[test]
    fn one_read_says_nothing_and_the_second_starts_it() {
        let mut streams = Streams::default();
        assert_eq!(streams.on_read(&(0..STEP), 64 * MIB, 8 * MIB), None);
        assert_eq!(streams.on_read(&(STEP..2 * STEP), 64 * MIB, 8 * MIB), Some(2 * STEP..2 * STEP + MIB));
    }

    #[test]
    fn what_is_read_ahead_covers_the_rest_once_and_ends_with_the_file() {
        let mut streams = Streams::default();
        let size = 50 * MIB + 12_345;
        let ahead = run(&mut streams, 0, 50 * MIB, size);
        assert!(ahead.windows(2).all(|pair| pair[0].end == pair[1].start), "{ahead:?}");
        assert_eq!((ahead.first().unwrap().start, ahead.last().unwrap().end), (2 * STEP, size));
        assert!(ahead.iter().all(|range| range.end - range.start <= 8 * MIB));
    }

    #[test]
    fn the_window_is_never_more_than_the_bound() {
        let mut streams = Streams::default();
        for step in 0..800 {
            let read = step * STEP..(step + 1) * STEP;
            if let Some(range) = streams.on_read(&read, 100 * MIB, 2 * MIB) {
                assert!(range.end - read.end <= 2 * MIB);
            }
        }
        assert_eq!(Streams::default().on_read(&(0..STEP), 100 * MIB, 0), None);
    }

    #[test]
    fn random_reads_start_nothing() {
        let mut streams = Streams::default();
        let mut place: u64 = 1;
        for _ in 0..1000 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (place >> 33) % 65_536 * 16 * MIB;
            assert_eq!(streams.on_read(&(offset..offset + 4096), 1 << 40, 8 * MIB), None);
        }
    }

    #[test]
    fn four_readers_of_one_file_are_told_apart() {
        let mut streams = Streams::default();
        let mut ahead = [0; 4];
        for step in 0..64 {
            for (reader, sum) in (0_u64..).zip(&mut ahead) {
                let start = reader * 64 * MIB + step * MIB;
                if let Some(range) = streams.on_read(&(start..start + MIB), 256 * MIB, 8 * MIB) {
                    *sum += range.end - range.start;
                }
            }
        }
        assert!(ahead.iter().all(|sum| (50 * MIB..=72 * MIB).contains(sum)), "{ahead:?}");
    }

    #[test]
    fn requests_out_of_order_are_one_reader() {
        let mut streams = Streams::default();
        let mut ahead = 0;
        for pair in 0..100 {
            for step in [pair * 2 + 1, pair * 2] {
                let range = streams.on_read(&(step * STEP..(step + 1) * STEP), 100 * MIB, 8 * MIB);
                ahead += range.map_or(0, |range| range.end - range.start);
            }
        }
        assert!(ahead >= 24 * MIB, "{ahead}");
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn what_was_not_read_ahead_after_all_is_asked_for_again() {
        let mut streams = Streams::default();
        streams.on_read(&(0..STEP), 64 * MIB, 8 * MIB);
        let range = streams.on_read(&(STEP..2 * STEP), 64 * MIB, 8 * MIB).unwrap();
        streams.not_asked(&range);
        let again = streams.on_read(&(2 * STEP..3 * STEP), 64 * MIB, 8 * MIB).unwrap();
        assert_eq!(again.start, 3 * STEP);
    }
}

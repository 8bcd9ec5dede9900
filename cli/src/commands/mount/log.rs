//! What a mount has to tell while nobody listens: lines with a time, on stderr.

use std::io::Write;
use std::time::Duration;

use forebay_cas::clock::{Clock, SystemClock};
use forebay_cas::sync::Mutex;
use forebay_cas::{Notices, Warning};

use crate::text;

/// Lines in each [`WINDOW`]: a program that reads a damaged file for ever must not fill the disk.
const LINES_MAX: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);

/// Writes warnings of a mount.
#[derive(Debug)]
pub(super) struct Log {
    clock: SystemClock,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    start: Duration,
    lines: u32,
    left_out: u64,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { clock: SystemClock::new(), window: Mutex::default() }
    }
}

impl Notices for Log {
    fn warn(&self, warning: Warning) {
        let now = self.clock.elapsed();
        let mut window = self.window.lock();
        let mut lines = String::new();
        let time = text::time(self.clock.now());
        if let Some(left_out) = window.turn(now) {
            lines.push_str(&format!("{time} {left_out} more lines were left out\n"));
        }
        if window.takes() {
            lines.push_str(&format!("{time} {}: {}\n", warning.kind, text::message(&warning.message)));
        }
        // Closed or broken stderr is nobody's error.
        let _nobody_reads = std::io::stderr().write_all(lines.as_bytes());
    }
}

impl Window {
    /// Begins anew when the time is over; says how many lines were left out, if any.
    fn turn(&mut self, now: Duration) -> Option<u64> {
        if now.saturating_sub(self.start) < WINDOW {
            return None;
        }
        let left_out = std::mem::take(self).left_out;
        self.start = now;
        (left_out > 0).then_some(left_out)
    }

    fn takes(&mut self) -> bool {
        let takes = self.lines < LINES_MAX;
        if takes {
            self.lines += 1;
        } else {
            self.left_out += 1;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_so_many_lines_and_says_what_it_left_out() {
        let mut window = Window::default();
        assert_eq!(window.turn(Duration::from_secs(1)), None);
        assert_eq!((0..LINES_MAX + 5).filter(|_| window.takes()).count(), LINES_MAX as usize);
        assert_eq!(window.turn(Duration::from_secs(59)), None);
        assert_eq!(window.turn(Duration::from_secs(61)), Some(5));
        assert!(window.takes());
        assert_eq!(window.turn(Duration::from_secs(200)), None);
    }
}

//! How far a long operation is, counted by the workers and read by whoever shows it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one operation. Workers add, one reader shows them; totals may still grow while a scan runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files to do.
    pub files_total: AtomicU64,
    /// Files done.
    pub files: AtomicU64,
    /// Bytes to do.
    pub bytes_total: AtomicU64,
    /// Bytes done.
    pub bytes: AtomicU64,
}

impl Progress {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Reads a counter.
    #[must_use]
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Something the user should know and that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// A stable word for programs, such as `skipped` or `index-rebuilt`.
    pub kind: &'static str,
    /// What happened, with what it means.
    pub message: String,
    /// The file it is about, raw bytes.
    pub path: Option<Vec<u8>>,
}

/// Where warnings go, as they happen. Called from several threads.
pub trait Notices: Send + Sync + Debug {
    /// Takes one warning.
    fn warn(&self, warning: Warning);
}

/// Collects warnings, for tests and for callers that show them at the end.
#[derive(Debug, Default)]
pub struct Collected(crate::sync::Mutex<Vec<Warning>>);

impl Collected {
    /// The warnings so far, in the order they came.
    #[must_use]
    pub fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Notices for Collected {
    fn warn(&self, warning: Warning) {
        self.0.lock().push(warning);
    }
}

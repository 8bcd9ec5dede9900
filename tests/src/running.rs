//! One run of the binary while it runs.

use std::fs;
use std::io::Read;
use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::outcome::Outcome;

/// A started command. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    plan: Plan,
    killed: bool,
    ended: bool,
}

/// What a [`Running`] needs to know about its command.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) shown: String,
    pub(crate) limit: Duration,
    pub(crate) head: Option<usize>,
    pub(crate) binary_stdout: bool,
    pub(crate) json: bool,
}

impl Running {
    pub(crate) fn new(mut child: Child, plan: Plan) -> Self {
        let head = plan.head;
        let stdout = child.stdout.take().map(|pipe| thread::spawn(move || read_to(pipe, head)));
        let stderr = child.stderr.take().map(|pipe| thread::spawn(move || read_to(pipe, None)));
        Self { child, started: Instant::now(), stdout, stderr, plan, killed: false, ended: false }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends `signal`; nothing happens when the run has ended already.
    pub fn signal(&mut self, signal: Signal) {
        if signal == Signal::KILL {
            self.killed = true;
        }
        if self.is_running() {
            rustix::process::kill_process(self.pid(), signal).expect("a child that was not waited for has its id");
        }
    }

    /// Waits for the end and checks nothing of what it said: somebody else kills it, or makes what no run can answer for.
    #[track_caller]
    pub fn wait_unchecked(mut self) -> Outcome {
        self.killed = true;
        self.wait()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for the end and checks what holds for every run.
    ///
    /// It fails when the limit passes, or when a process of the run is left behind.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let mut peak_rss_bytes = 0;
        let mut pause = Duration::from_micros(300);
        let status = loop {
            peak_rss_bytes = peak_rss_bytes.max(high_water_mark(self.child.id()));
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            let late = self.started.elapsed() > self.plan.limit;
            assert!(!late, "not ended after {:?}: {}", self.plan.limit, self.plan.shown);
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(4));
        };
        self.ended = true;
        let elapsed = self.started.elapsed();
        let join = |stream: Option<JoinHandle<Vec<u8>>>| {
            stream.map_or_else(Vec::new, |thread| thread.join().expect("the reader of a pipe does not panic"))
        };
        let outcome = Outcome {
            command: self.plan.shown.clone(),
            status,
            stdout: join(self.stdout.take()),
            stderr: join(self.stderr.take()),
            peak_rss_bytes,
            elapsed,
            binary_stdout: self.plan.binary_stdout,
            json: self.plan.json,
        };
        let left = rustix::process::test_kill_process_group(self.pid());
        assert_eq!(left, Err(rustix::io::Errno::SRCH), "a process is left behind\n{outcome:?}");
        if !self.killed {
            outcome.check_always();
        }
        outcome
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            // The id is still ours: the child was not waited for.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Polls `condition` every millisecond until it holds; fails after `limit`.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < limit, "after {limit:?} still not: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads a pipe to its end, or closes it after `head` bytes as `head -c` does.
fn read_to(mut pipe: impl Read, head: Option<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match head {
        None => {
            pipe.read_to_end(&mut bytes).ok();
        }
        Some(len) => {
            pipe.take(len as u64).read_to_end(&mut bytes).ok();
        }
    }
    bytes
}

/// `VmHWM` belongs to the executed image, so neither the harness nor a wrapper shell is counted in it.
pub(crate) fn high_water_mark(pid: u32) -> u64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

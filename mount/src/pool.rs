//! A few threads for what takes long, with a bounded queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use forebay_cas::sync::{Receiver, Sender, bounded};
use forebay_cas::task;

/// Jobs that are being done when the pool is dropped are waited for this long; one that hangs on a network is left to
/// the end of the process.
const PATIENCE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that do one job after the other. Dropped, it finishes what has been begun and forgets what is queued.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: Option<Sender<Job>>,
    queued: Receiver<Job>,
    /// Closed when the last thread has ended.
    ended: Receiver<()>,
}

impl Pool {
    /// Starts the threads.
    pub(crate) fn new(name: &str, threads: usize, queue: usize) -> Self {
        let (jobs, queued) = bounded::<Job>(queue);
        let (alive, ended) = bounded(0);
        for number in 0..threads {
            let (queued, alive) = (queued.clone(), Sender::<()>::clone(&alive));
            task::spawn(&format!("{name}-{number}"), move || {
                while let Ok(job) = queued.recv() {
                    // A panic is told by its hook; the request it belongs to is answered when its reply is dropped.
                    let _told = catch_unwind(AssertUnwindSafe(job));
                }
                drop(alive);
            });
        }
        Self { jobs: Some(jobs), queued, ended }
    }

    /// Queues a job; waits if the queue is full.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // The threads end only after the pool is dropped.
            let _never_closed = jobs.send(Box::new(job));
        }
    }

    /// Queues a job if there is room; says whether there was.
    pub(crate) fn try_run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(Box::new(job)).is_ok())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        while self.queued.try_recv().is_ok() {}
        let _closed_or_late = self.ended.recv_timeout(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_and_a_panic_costs_no_thread() {
        let pool = Pool::new("test", 1, 4);
        let (done, seen) = bounded(4);
        pool.run(|| panic!("a test of panics"));
        pool.run(move || done.send(7).unwrap());
        assert_eq!(seen.recv_timeout(PATIENCE), Ok(7));
    }

    #[test]
    fn a_full_queue_says_so_and_what_is_queued_is_forgotten_at_the_end() {
        let (go, wait) = bounded::<()>(0);
        let (done, seen) = bounded(8);
        let pool = Pool::new("test", 1, 2);
        let begun = done.clone();
        pool.run(move || {
            begun.send(0).unwrap();
            let _closed = wait.recv();
            begun.send(1).unwrap();
        });
        assert_eq!(seen.recv_timeout(PATIENCE), Ok(0));
        for _ in 0..2 {
            let done = done.clone();
            assert!(pool.try_run(move || done.send(2).unwrap()));
        }
        assert!(!pool.try_run(|| ()));
        let queued = pool.queued.clone();
        let ender = task::spawn("end", move || drop(pool));
        // The job that has begun may end only after the others are forgotten: its thread would take the next one.
        while !queued.is_empty() {
            std::thread::yield_now();
        }
        drop(go);
        ender.join().unwrap();
        drop(done);
        assert_eq!(seen.iter().last(), Some(1));
    }
}

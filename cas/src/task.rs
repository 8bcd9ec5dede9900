//! The only place that starts threads.

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Starts a named thread that ends before its scope does.
///
/// # Panics
/// If the operating system refuses a thread; a program that cannot start its few workers cannot go on.
pub fn spawn_scoped<'scope, 'env, T, F>(
    scope: &'scope Scope<'scope, 'env>,
    name: &str,
    work: F,
) -> ScopedJoinHandle<'scope, T>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work).expect("the system gives a few threads")
}

/// Starts a named thread; whoever holds the handle waits for it before the program goes on without it.
///
/// # Panics
/// As [`spawn_scoped`].
pub fn spawn<T, F>(name: &str, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().name(name.to_owned()).spawn(work).expect("the system gives a few threads")
}

/// Waits for a thread and passes its panic on.
pub fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A runtime on one thread of its own, for an endpoint of the network: measured faster than sharing one with others. It
/// stops when it is dropped.
#[derive(Debug)]
pub struct RuntimeThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Starts it.
    ///
    /// # Errors
    /// What the system says if it gives no thread or no timers.
    pub fn start(name: &str) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let _stopped_or_dropped = runtime.block_on(stopped);
            // Tasks of owners that are gone already.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// To run tasks on it.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ended_already = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _panic_was_shown = thread.join();
        }
    }
}

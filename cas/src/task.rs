//! The only place that starts threads.

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

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

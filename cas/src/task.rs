//! The only place that starts threads.

use std::thread::{Builder, Scope, ScopedJoinHandle};

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

/// Waits for a thread and passes its panic on.
pub fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

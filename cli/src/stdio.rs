//! Whether standard output was open when the program started. Rust's runtime opens /dev/null in place of a closed
//! descriptor before `main`, and results would vanish there without a word.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the program was started with standard output closed.
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

#[expect(unsafe_code, reason = "only a function the loader calls sees the descriptors as the parent left them")]
// SAFETY: the section holds function pointers that the loader calls once, before `main`, without arguments that matter
// here; the function asks the kernel about a descriptor and stores a flag, and needs nothing of Rust's runtime.
#[unsafe(link_section = ".init_array")]
#[used]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    let closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
}

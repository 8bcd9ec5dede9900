//! Signals that ask to stop.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use forebay_cas::{Cancel, clock};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

const SIGINT_EXIT: u8 = 130;
const SIGTERM_EXIT: u8 = 143;
/// After the first signal work stops at the next safe point; longer than this nobody waits for a store that hangs.
const GRACE: Duration = Duration::from_secs(15);

static EXIT: AtomicU8 = AtomicU8::new(SIGINT_EXIT);

/// Exit code of the signal that came.
pub(crate) fn exit_code() -> u8 {
    EXIT.load(Ordering::Relaxed)
}

/// Asks `cancel` at the first SIGINT or SIGTERM; the second ends the program at once.
pub(crate) fn listen(runtime: &Runtime, cancel: Cancel) {
    let _guard = runtime.enter();
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    #[expect(clippy::disallowed_methods, reason = "lives as long as the process and holds nothing")]
    tokio::task::spawn(async move {
        let code = tokio::select! {
            _ = interrupt.recv() => SIGINT_EXIT,
            _ = terminate.recv() => SIGTERM_EXIT,
        };
        EXIT.store(code, Ordering::Relaxed);
        cancel.cancel();
        tokio::select! {
            _ = interrupt.recv() => {},
            _ = terminate.recv() => {},
            () = clock::sleep(GRACE) => {},
        }
        #[expect(clippy::exit, reason = "the second signal means now; whatever is on disk can be resumed")]
        std::process::exit(code.into());
    });
}

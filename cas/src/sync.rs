//! Locks and channels, all through one door, so that a model checker can take their place.

pub use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, SendError, Sender, TrySendError, bounded};
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

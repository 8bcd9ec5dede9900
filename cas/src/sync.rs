//! Locks and channels, all through one door, so that a model checker can take their place.

pub use crossbeam_channel::{Receiver, RecvError, SendError, Sender, bounded};
pub use parking_lot::{Mutex, RwLock};

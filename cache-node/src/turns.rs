//! Turns to read: what bounds the memory and threads of a node, whatever clients ask for.
//!
//! A client that has stopped reading, or was killed and is not missed yet, must not keep others waiting, nor the next run
//! of itself: each key has a share of the turns, and a turn is lent to others while its taker is slow.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_cas::clock;
use forebay_cas::sync::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Requests that read at a time.
const TURNS: usize = 16;
/// Those of one key: a client alone still fills its link, and a quarter is left for others.
const TURNS_OF_ONE: usize = 12;
/// A taker that needs longer for a frame is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Keys remembered before those without turns are forgotten.
const KEYS_MAX: usize = 1024;

/// Hands out turns.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Semaphore,
    slow: Semaphore,
    by_key: Mutex<BTreeMap<[u8; 32], Arc<Semaphore>>>,
}

/// A turn; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    key: [u8; 32],
    held: Option<(SemaphorePermit<'t>, OwnedSemaphorePermit)>,
}

impl Turns {
    /// At most `slow_max` answers to slow takers wait without a turn.
    pub(crate) fn new(slow_max: usize) -> Self {
        Self { all: Semaphore::new(TURNS), slow: Semaphore::new(slow_max), by_key: Mutex::default() }
    }

    /// Waits for a turn of this key. `None` cannot happen while the node lives.
    pub(crate) async fn take(&self, key: [u8; 32]) -> Option<Turn<'_>> {
        let mut turn = Turn { turns: self, key, held: None };
        turn.wait().await?;
        Some(turn)
    }

    fn share(&self, key: [u8; 32]) -> Arc<Semaphore> {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= KEYS_MAX {
            by_key.retain(|_, share| Arc::strong_count(share) > 1);
        }
        Arc::clone(by_key.entry(key).or_insert_with(|| Arc::new(Semaphore::new(TURNS_OF_ONE))))
    }
}

impl Turn<'_> {
    /// Waits until a frame is taken; others have the turn if that takes long. `None`: too many are slow already, and this
    /// answer is to be broken off.
    pub(crate) async fn lend<T>(&mut self, taken: impl Future<Output = T>) -> Option<T> {
        let mut taken = pin!(taken);
        if let Ok(taken) = clock::timeout(SLOW, &mut taken).await {
            return Some(taken);
        }
        let _waiting = self.turns.slow.try_acquire().ok()?;
        self.held = None;
        let taken = taken.await;
        self.wait().await?;
        Some(taken)
    }

    async fn wait(&mut self) -> Option<()> {
        let of_one = self.turns.share(self.key).acquire_owned().await.ok()?;
        let of_all = self.turns.all.acquire().await.ok()?;
        self.held = Some((of_all, of_one));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SLOW_MAX: usize = 16;

    #[test]
    fn one_key_never_has_all_turns() {
        let turns = Turns::new(SLOW_MAX);
        let greedy: Vec<_> = (0..TURNS_OF_ONE).map(|_| turns.take([1; 32]).now_or_never()).collect();
        assert!(greedy.iter().all(Option::is_some));
        assert!(turns.take([1; 32]).now_or_never().is_none(), "its share is used up");
        let others: Vec<_> = (TURNS_OF_ONE..TURNS).map(|_| turns.take([2; 32]).now_or_never()).collect();
        assert!(others.iter().all(Option::is_some));
        assert!(turns.take([3; 32]).now_or_never().is_none(), "all are taken");
        drop(greedy);
        assert!(turns.take([3; 32]).now_or_never().is_some());
    }

    #[test]
    fn who_is_slow_lends_its_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let turns = Turns::new(SLOW_MAX);
            let slow = || async {
                let mut turn = turns.take([1; 32]).await.unwrap();
                turn.lend(std::future::pending::<()>()).await
            };
            let mut many = pin!(futures_util::future::join_all((0..=SLOW_MAX).map(|_| slow())));
            assert!(clock::timeout(6 * SLOW, &mut many).await.is_err(), "they wait for ever");
            assert!(turns.take([1; 32]).now_or_never().flatten().is_some(), "and hold no turn meanwhile");
            assert_eq!(turns.slow.available_permits(), 0, "there are only so many of them");
        });
    }

    #[test]
    fn keys_without_turns_are_forgotten() {
        let turns = Turns::new(SLOW_MAX);
        let kept = turns.take([0xff; 32]).now_or_never();
        for number in 0..4 * u32::try_from(KEYS_MAX).unwrap() {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            assert!(turns.take(key).now_or_never().flatten().is_some());
        }
        let by_key = turns.by_key.lock();
        assert!(by_key.len() <= KEYS_MAX && by_key.contains_key(&[0xff; 32]), "{} keys", by_key.len());
        drop(kept);
    }
}

//! What was read, kept up to a number of bytes, each thing read by one thread at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use forebay_cas::ReadError;
use forebay_cas::sync::{Condvar, Mutex, MutexGuard};

/// A cache with a hard bound: what it keeps and what is being read into it together never exceed `capacity` bytes,
/// unless a single thing is larger.
///
/// [`Cache::claim`] tells a thread either the value, or that it is the one to read it, or who is reading it. A reader
/// that fails tells those who wait for it, and nobody else: the next claim tries again.
///
/// Victims are, in this order: what is used up ([`Cache::use_up`]), what was not used for the longest time, what was
/// read ahead and not used yet. The last may take up half the capacity at most.
pub(crate) struct Cache<K: Ord + Copy, V> {
    capacity: u64,
    state: Mutex<State<K, V>>,
    /// A reader has finished, or there is room again.
    changed: Condvar,
}

/// What [`Cache::claim`] found.
pub(crate) enum Claim<'c, K: Ord + Copy, V> {
    /// Here it is.
    Ready(Arc<V>),
    /// The caller is to read it.
    Mine(Ticket<'c, K, V>),
    /// Somebody is reading it: [`Cache::wait`].
    Theirs(Flight<V>),
    /// There is no room for it now, and the caller did not want to wait.
    Full,
}

/// What a claim does if there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Waits until others have read what they are reading. Not to be used by who holds a [`Ticket`].
    Wait,
    /// Gives up.
    Try,
    /// Gives up; what is read counts as read ahead.
    Ahead,
}

/// Somebody's reading of a value.
pub(crate) type Flight<V> = Arc<OnceLock<Outcome<V>>>;

/// How a reading ended.
pub(crate) enum Outcome<V> {
    /// With the value.
    Value(Arc<V>),
    /// With an error.
    Failed(Arc<ReadError>),
    /// The reader gave up: somebody else should try.
    Abandoned,
}

/// The duty to read a value. Dropped, it says that the reader gave up.
pub(crate) struct Ticket<'c, K: Ord + Copy, V> {
    cache: &'c Cache<K, V>,
    key: K,
    reserved: u64,
    rank: Rank,
    flight: Flight<V>,
    finished: bool,
}

struct State<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    /// What can be thrown away, first victim first.
    order: BTreeMap<(Rank, u64), K>,
    tick: u64,
    resident: u64,
    reserved: u64,
    /// Bytes read or being read ahead, not used yet.
    ahead: u64,
}

enum Slot<V> {
    Loading(Flight<V>),
    Ready { value: Arc<V>, bytes: u64, place: (Rank, u64) },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    UsedUp,
    Live,
    Ahead,
}

impl<K: Ord + Copy, V> Cache<K, V> {
    /// An empty cache of so many bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        let state =
            State { slots: BTreeMap::new(), order: BTreeMap::new(), tick: 0, resident: 0, reserved: 0, ahead: 0 };
        Self { capacity, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The value, if it is here.
    pub(crate) fn peek(&self, key: K) -> Option<Arc<V>> {
        self.state.lock().touch(key)
    }

    /// Finds a value, or takes on the reading of it; `bytes` is what it will take up.
    pub(crate) fn claim(&self, key: K, bytes: u64, room: Room) -> Claim<'_, K, V> {
        let mut state = self.state.lock();
        loop {
            if room == Room::Ahead && matches!(state.slots.get(&key), Some(Slot::Ready { .. })) {
                return Claim::Full;
            }
            if let Some(value) = state.touch(key) {
                return Claim::Ready(value);
            }
            if let Some(Slot::Loading(flight)) = state.slots.get(&key) {
                return Claim::Theirs(Arc::clone(flight));
            }
            if state.make_room(self.capacity, bytes, room) {
                return Claim::Mine(self.ticket(state, key, bytes, room));
            }
            match room {
                Room::Wait => self.changed.wait(&mut state),
                Room::Try | Room::Ahead => return Claim::Full,
            }
        }
    }

    /// Waits for somebody's reading; `None` if it was given up.
    pub(crate) fn wait(&self, key: K, flight: &Flight<V>) -> Option<Result<Arc<V>, Arc<ReadError>>> {
        let mut state = self.state.lock();
        loop {
            match flight.get() {
                None => self.changed.wait(&mut state),
                Some(Outcome::Value(value)) => {
                    state.touch(key);
                    return Some(Ok(Arc::clone(value)));
                }
                Some(Outcome::Failed(error)) => return Some(Err(Arc::clone(error))),
                Some(Outcome::Abandoned) => return None,
            }
        }
    }

    /// Finds a value or reads it; `weigh` says what it takes up.
    ///
    /// # Errors
    /// What `load` returned, here or in the thread that was waited for.
    pub(crate) fn get_or_load(
        &self,
        key: K,
        weigh: impl Fn(&V) -> u64,
        mut load: impl FnMut() -> Result<V, ReadError>,
    ) -> Result<Arc<V>, Arc<ReadError>> {
        loop {
            match self.claim(key, 0, Room::Wait) {
                Claim::Ready(value) => return Ok(value),
                Claim::Mine(ticket) => {
                    return match load() {
                        Ok(value) => {
                            let bytes = weigh(&value);
                            Ok(ticket.fill(value, bytes))
                        }
                        Err(error) => {
                            let error = Arc::new(error);
                            ticket.fail(&error);
                            Err(error)
                        }
                    };
                }
                Claim::Theirs(flight) => {
                    if let Some(result) = self.wait(key, &flight) {
                        return result;
                    }
                }
                // A claim that waits is never told this.
                Claim::Full => {}
            }
        }
    }

    /// Keeps a value unless there is one; returns the one that is kept.
    pub(crate) fn insert(&self, key: K, value: V, bytes: u64) -> Arc<V> {
        match self.claim(key, 0, Room::Try) {
            Claim::Ready(value) => value,
            Claim::Mine(ticket) => ticket.fill(value, bytes),
            Claim::Theirs(_) | Claim::Full => Arc::new(value),
        }
    }

    /// Says that a value will hardly be wanted again.
    pub(crate) fn use_up(&self, key: K) {
        self.state.lock().rank(key, Rank::UsedUp);
    }

    /// Bytes that are kept and bytes that are being read.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.resident, state.reserved)
    }

    fn ticket(&self, mut state: MutexGuard<'_, State<K, V>>, key: K, reserved: u64, room: Room) -> Ticket<'_, K, V> {
        let rank = if room == Room::Ahead { Rank::Ahead } else { Rank::Live };
        let flight = Flight::default();
        state.reserved += reserved;
        if rank == Rank::Ahead {
            state.ahead += reserved;
        }
        state.slots.insert(key, Slot::Loading(Arc::clone(&flight)));
        Ticket { cache: self, key, reserved, rank, flight, finished: false }
    }
}

impl<K: Ord + Copy, V> Ticket<'_, K, V> {
    /// What is to be read.
    pub(crate) fn key(&self) -> K {
        self.key
    }

    /// Bytes that were claimed for it.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Tells those who wait that it cannot be read.
    pub(crate) fn fail(mut self, error: &Arc<ReadError>) {
        self.give_up(Outcome::Failed(Arc::clone(error)));
    }

    /// Hands over the value, which takes up so many bytes.
    pub(crate) fn fill(mut self, value: V, bytes: u64) -> Arc<V> {
        self.finished = true;
        let value = Arc::new(value);
        let mut state = self.cache.state.lock();
        state.reserved -= self.reserved;
        state.resident += bytes;
        if self.rank == Rank::Ahead {
            state.ahead = state.ahead - self.reserved + bytes;
        }
        let place = state.next_place(self.rank);
        state.order.insert(place, self.key);
        state.slots.insert(self.key, Slot::Ready { value: Arc::clone(&value), bytes, place });
        while state.resident + state.reserved > self.cache.capacity && state.order.len() > 1 {
            state.evict_first();
        }
        let _set_once = self.flight.set(Outcome::Value(Arc::clone(&value)));
        drop(state);
        self.cache.changed.notify_all();
        value
    }

    fn give_up(&mut self, outcome: Outcome<V>) {
        self.finished = true;
        let mut state = self.cache.state.lock();
        state.reserved -= self.reserved;
        if self.rank == Rank::Ahead {
            state.ahead -= self.reserved;
        }
        state.slots.remove(&self.key);
        let _set_once = self.flight.set(outcome);
        drop(state);
        self.cache.changed.notify_all();
    }
}

impl<K: Ord + Copy, V> Drop for Ticket<'_, K, V> {
    fn drop(&mut self) {
        if !self.finished {
            self.give_up(Outcome::Abandoned);
        }
    }
}

impl<K: Ord + Copy, V> State<K, V> {
    /// The value if it is here; it counts as used now.
    fn touch(&mut self, key: K) -> Option<Arc<V>> {
        self.rank(key, Rank::Live);
        match self.slots.get(&key) {
            Some(Slot::Ready { value, .. }) => Some(Arc::clone(value)),
            _ => None,
        }
    }

    fn rank(&mut self, key: K, rank: Rank) {
        let next = self.next_place(rank);
        if let Some(Slot::Ready { bytes, place, .. }) = self.slots.get_mut(&key) {
            if place.0 == Rank::Ahead {
                self.ahead -= *bytes;
            }
            self.order.remove(place);
            self.order.insert(next, key);
            *place = next;
        }
    }

    fn next_place(&mut self, rank: Rank) -> (Rank, u64) {
        self.tick += 1;
        (rank, self.tick)
    }

    /// Throws away until `bytes` fit; `false` if they do not, because others are reading too much.
    fn make_room(&mut self, capacity: u64, bytes: u64, room: Room) -> bool {
        if room == Room::Ahead {
            let share = capacity / 2;
            while self.ahead + bytes > share {
                let Some((place, _)) = self.order.range((Rank::Ahead, 0)..).next() else { return false };
                let place = *place;
                self.evict(place);
            }
        }
        while self.resident + self.reserved + bytes > capacity {
            if self.order.is_empty() {
                return self.reserved == 0 && room != Room::Ahead;
            }
            self.evict_first();
        }
        true
    }

    fn evict_first(&mut self) {
        if let Some((place, _)) = self.order.first_key_value() {
            let place = *place;
            self.evict(place);
        }
    }

    fn evict(&mut self, place: (Rank, u64)) {
        let Some(key) = self.order.remove(&place) else { return };
        if let Some(Slot::Ready { bytes, .. }) = self.slots.remove(&key) {
            self.resident -= bytes;
            if place.0 == Rank::Ahead {
                self.ahead -= bytes;
            }
        }
    }
}

impl<K: Ord + Copy, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resident, reserved) = self.bytes();
        f.debug_struct("Cache")
            .field("capacity", &self.capacity)
            .field("resident", &resident)
            .field("reserved", &reserved)
            .finish()
    }
}

#[cfg(test)]
mod tests;

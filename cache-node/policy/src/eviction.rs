//! Which entry a full cache loses.
//!
//! Entries stand in one total order, (class, last use, sequence, id), least first. *Use* and *sequence* come
//! from counters, not clocks, so that the victims are a function of the calls alone.
//!
//! Each class has a *floor*, the share that is kept for it, and a *cap*, the most it may have. A class is
//! *above its floor* while it holds more bytes than its floor; the last eviction out of it may take it below
//! by a part of one entry. Room for a newcomer is made by these rules, in order:
//!
//! 1. Over its own cap, a class loses its own least entries.
//! 2. The victim is the least entry of the lowest class above its floor.
//! 3. A newcomer takes nothing from a higher class if its own class, with it, is above its floor.
//! 4. [`Class::Unreplicated`] loses nothing.
//!
//! Where these give no room the newcomer is refused and nothing is evicted. The order inside a class is by
//! last use; what it costs to fetch an entry again is not part of it.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::class::Class;

mod plan;
mod share;

pub use share::{ConfigError, EvictionConfig, Share};

use plan::Plan;
use share::Bounds;

/// The bookkeeping of a cache with a fixed capacity. It holds no data: whoever owns it deletes the victims.
///
/// `K` identifies an entry, and settles the order where all else is equal. The logical clock counts
/// admissions and uses. Cost: O(log n) per call and per victim.
///
/// The bytes of all entries never exceed the capacity, and those of a class never exceed its cap.
#[derive(Debug, Clone)]
pub struct EvictionCore<K> {
    capacity_bytes: u64,
    bounds: [Bounds; 6],
    used: [u64; 6],
    entries: BTreeMap<K, Entry>,
    /// The order of each class; one after the other they are the whole order.
    order: [BTreeSet<Rank<K>>; 6],
    clock: u64,
}

/// The place of an entry in the order of its class, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<K> {
    used_at: u64,
    sequence: u64,
    id: K,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    class: Class,
    used_at: u64,
    sequence: u64,
    bytes: u64,
}

impl Entry {
    const fn rank<K>(&self, id: K) -> Rank<K> {
        Rank { used_at: self.used_at, sequence: self.sequence, id }
    }
}

/// An entry that has left the order; its bytes are free once the owner has deleted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim<K> {
    /// Which entry.
    pub id: K,
    /// The class it had.
    pub class: Class,
    /// Its size in bytes.
    pub bytes: u64,
}

impl<K: Copy + Ord> EvictionCore<K> {
    /// An empty cache.
    ///
    /// # Errors
    /// [`ConfigError`] if the shares contradict each other or the capacity.
    pub fn new(config: &EvictionConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            capacity_bytes: config.capacity_bytes,
            bounds: config.bounds()?,
            used: [0; 6],
            entries: BTreeMap::new(),
            order: Class::ALL.map(|_| BTreeSet::new()),
            clock: 0,
        })
    }

    /// Adds an entry, which counts as its first use, and returns what had to go, in the order of eviction.
    ///
    /// # Errors
    /// [`AdmitError`]: the entry is not added, and nothing is evicted.
    pub fn admit(&mut self, id: K, class: Class, bytes: u64) -> Result<Vec<Victim<K>>, AdmitError> {
        if self.entries.contains_key(&id) {
            return Err(AdmitError::Present);
        }
        let plan = self.plan_room(class, bytes, bytes)?;
        let victims = self.carry_out(plan);
        self.clock += 1;
        self.insert(id, Entry { class, used_at: self.clock, sequence: self.clock, bytes });
        Ok(victims)
    }

    /// Notes a use of an entry. `false`: there is none of this id, and nothing has changed.
    pub fn touch(&mut self, id: K) -> bool {
        let Some(entry) = self.take(id) else {
            return false;
        };
        self.clock += 1;
        self.insert(id, Entry { used_at: self.clock, ..entry });
        true
    }

    /// Moves an entry to another class; its last use stays. Over the cap of that class, the class loses its
    /// least other entries, which are returned. `None`: there is no entry of this id.
    ///
    /// # Errors
    /// [`AdmitError::NoRoom`] if the cap of the class has no room for it; nothing has changed then.
    pub fn reclassify(&mut self, id: K, class: Class) -> Result<Option<Vec<Victim<K>>>, AdmitError> {
        let Some(entry) = self.take(id) else {
            return Ok(None);
        };
        // Its bytes are counted out and in again, so that only the cap of the class can be short of room.
        let victims = match self.plan_room(class, entry.bytes, 0) {
            Ok(plan) => self.carry_out(plan),
            Err(error) => {
                self.insert(id, entry);
                return Err(error);
            }
        };
        self.insert(id, Entry { class, ..entry });
        Ok(Some(victims))
    }

    /// Removes an entry that is gone for another reason than room, for example a corrupt one.
    pub fn remove(&mut self, id: K) -> Option<Victim<K>> {
        let entry = self.take(id)?;
        Some(Victim { id, class: entry.class, bytes: entry.bytes })
    }

    /// Evicts until `bytes` are freed, for example because something else fills the disk. Classes above
    /// their floors lose first, lowest first; then all others, lowest first. Unreplicated entries stay: the
    /// victims may be too few.
    pub fn evict_for(&mut self, bytes: u64) -> Vec<Victim<K>> {
        let mut plan = Plan::new(self);
        while plan.freed() < bytes {
            let above_floor = plan.lowest(|class, used| used > self.bounds[class.index()].floor_bytes);
            let Some(class) = above_floor.or_else(|| plan.lowest(|_, _| true)) else {
                break;
            };
            plan.evict(class);
        }
        let plan = plan.finish();
        self.carry_out(plan)
    }

    /// Bytes of all entries.
    pub fn used_bytes(&self) -> u64 {
        self.used.iter().sum()
    }

    /// Bytes of the entries of one class.
    pub const fn class_bytes(&self, class: Class) -> u64 {
        self.used[class.index()]
    }

    /// The most bytes that all entries may have.
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The class and size in bytes of an entry.
    pub fn get(&self, id: K) -> Option<(Class, u64)> {
        self.entries.get(&id).map(|entry| (entry.class, entry.bytes))
    }

    /// All ids in the order of eviction, the first to go first.
    pub fn ids(&self) -> impl Iterator<Item = K> + '_ {
        self.order.iter().flatten().map(|rank| rank.id)
    }

    /// The victims that let `class` grow by `bytes` and the whole cache by `growth`; changes nothing.
    fn plan_room(&self, class: Class, bytes: u64, growth: u64) -> Result<Vec<Victim<K>>, AdmitError> {
        let Bounds { floor_bytes, cap_bytes } = self.bounds[class.index()];
        let no_room = AdmitError::NoRoom { class, bytes };
        let mut plan = Plan::new(self);
        while plan.used(class).saturating_add(bytes) > cap_bytes {
            if !plan.evict(class) {
                return Err(no_room);
            }
        }
        while plan.total().saturating_add(growth) > self.capacity_bytes {
            let within_floor = plan.used(class).saturating_add(bytes) <= floor_bytes;
            let victim =
                plan.lowest(
                    |other, used| {
                        if other == class { !within_floor } else { used > self.bounds[other.index()].floor_bytes }
                    },
                );
            match victim {
                Some(other) if other <= class || within_floor => plan.evict(other),
                Some(_) | None => return Err(no_room),
            };
        }
        Ok(plan.finish())
    }

    fn carry_out(&mut self, victims: Vec<Victim<K>>) -> Vec<Victim<K>> {
        for victim in &victims {
            self.take(victim.id);
        }
        victims
    }

    fn insert(&mut self, id: K, entry: Entry) {
        self.used[entry.class.index()] += entry.bytes;
        self.order[entry.class.index()].insert(entry.rank(id));
        self.entries.insert(id, entry);
    }

    fn take(&mut self, id: K) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.order[entry.class.index()].remove(&entry.rank(id));
        self.used[entry.class.index()] -= entry.bytes;
        Some(entry)
    }
}

/// Why an entry is not admitted. The cache is as it was; the reader is served without keeping the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The id is there already; to use it again is a touch.
    #[error("the entry is in the cache already")]
    Present,
    /// Neither the cap of the class nor what may be evicted for it gives enough room.
    #[error("no room for {bytes} bytes of class {class}")]
    NoRoom {
        /// Class of the newcomer.
        class: Class,
        /// Size of the newcomer in bytes.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests;

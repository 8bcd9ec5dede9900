//! Evictions thought through to the end before any is made.

use std::collections::btree_set;
use std::iter::Peekable;

use super::{EvictionCore, Rank, Victim};
use crate::class::Class;

/// A cache as it would be after some evictions. Entries of a class leave it in their order.
pub(super) struct Plan<'a, K> {
    core: &'a EvictionCore<K>,
    used: [u64; 6],
    next: [Peekable<btree_set::Iter<'a, Rank<K>>>; 6],
    freed: u64,
    victims: Vec<Victim<K>>,
}

impl<'a, K: Copy + Ord> Plan<'a, K> {
    pub(super) fn new(core: &'a EvictionCore<K>) -> Self {
        let next = Class::ALL.map(|class| core.order[class.index()].iter().peekable());
        Self { core, used: core.used, next, freed: 0, victims: Vec::new() }
    }

    /// Evicts the least entry of `class`; `false` if it has none, or none that may go.
    pub(super) fn evict(&mut self, class: Class) -> bool {
        if !class.is_evictable() {
            return false;
        }
        let Some(rank) = self.next[class.index()].next() else {
            return false;
        };
        let bytes = self.core.entries[&rank.id].bytes;
        self.used[class.index()] -= bytes;
        self.freed += bytes;
        self.victims.push(Victim { id: rank.id, class, bytes });
        true
    }

    /// The lowest class that has an entry which may go, and for which `wanted(class, bytes it has)` holds.
    pub(super) fn lowest(&mut self, wanted: impl Fn(Class, u64) -> bool) -> Option<Class> {
        Class::ALL.into_iter().find(|class| {
            let index = class.index();
            class.is_evictable() && self.next[index].peek().is_some() && wanted(*class, self.used[index])
        })
    }

    pub(super) const fn used(&self, class: Class) -> u64 {
        self.used[class.index()]
    }

    pub(super) fn total(&self) -> u64 {
        self.used.iter().sum()
    }

    pub(super) const fn freed(&self) -> u64 {
        self.freed
    }

    pub(super) fn finish(self) -> Vec<Victim<K>> {
        self.victims
    }
}

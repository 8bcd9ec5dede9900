//! The eviction core against named cases and against a model that knows no order and no plan.

use proptest::prelude::*;

use super::*;

fn config(capacity_bytes: u64, floors: &[(Class, u64)], caps: &[(Class, u64)]) -> EvictionConfig {
    let shares = |list: &[(Class, u64)]| list.iter().map(|&(class, bytes)| (class, Share::Bytes(bytes))).collect();
    EvictionConfig { capacity_bytes, floors: shares(floors), caps: shares(caps) }
}

fn ids(victims: &[Victim<u32>]) -> Vec<u32> {
    victims.iter().map(|victim| victim.id).collect()
}

#[test]
fn the_lowest_class_goes_first_and_in_it_the_least_recently_used() {
    let mut core = EvictionCore::new(&config(100, &[], &[])).unwrap();
    for (id, class) in [(1, Class::Standard), (2, Class::Prefetch), (3, Class::Prefetch), (4, Class::Pinned)] {
        assert_eq!(core.admit(id, class, 25), Ok(vec![]));
    }
    assert!(core.touch(2));
    assert_eq!(core.ids().collect::<Vec<_>>(), [3, 2, 1, 4]);
    assert_eq!(ids(&core.admit(5, Class::Standard, 60).unwrap()), [3, 2, 1]);
}

#[test]
fn a_lower_class_takes_nothing_from_a_higher_one() {
    let mut core = EvictionCore::new(&config(100, &[], &[])).unwrap();
    core.admit(1, Class::Standard, 80).unwrap();
    core.admit(2, Class::Prefetch, 20).unwrap();
    let no_room = AdmitError::NoRoom { class: Class::Prefetch, bytes: 30 };
    assert_eq!(core.admit(3, Class::Prefetch, 30), Err(no_room));
    assert_eq!(core.ids().collect::<Vec<_>>(), [2, 1]);
    assert_eq!(ids(&core.admit(3, Class::Prefetch, 20).unwrap()), [2]);
}

#[test]
fn a_floor_is_kept_for_its_class_and_can_be_claimed() {
    let mut core = EvictionCore::new(&config(100, &[(Class::Prefetch, 20)], &[])).unwrap();
    core.admit(1, Class::Pinned, 50).unwrap();
    core.admit(2, Class::Pinned, 50).unwrap();
    // Below its floor, prefetch may take from any class; above it, it may not.
    assert_eq!(ids(&core.admit(3, Class::Prefetch, 20).unwrap()), [1]);
    core.admit(4, Class::Pinned, 30).unwrap();
    assert!(core.admit(5, Class::Prefetch, 21).is_err());
    // At its floor it loses nothing, even to pinned.
    assert_eq!(ids(&core.admit(6, Class::Pinned, 10).unwrap()), [2]);
    assert_eq!(core.class_bytes(Class::Prefetch), 20);
}

#[test]
fn a_cap_is_kept_even_in_an_empty_cache() {
    let mut core = EvictionCore::new(&config(100, &[], &[(Class::Prefetch, 30)])).unwrap();
    core.admit(1, Class::Prefetch, 20).unwrap();
    assert_eq!(ids(&core.admit(2, Class::Prefetch, 20).unwrap()), [1]);
    assert!(core.admit(3, Class::Prefetch, 31).is_err());
    core.admit(4, Class::Standard, 20).unwrap();
    assert_eq!(
        core.reclassify(4, Class::Prefetch),
        Ok(Some(vec![Victim { id: 2, class: Class::Prefetch, bytes: 20 }]))
    );
}

#[test]
fn unreplicated_stays_until_it_is_given_another_class() {
    let mut core = EvictionCore::new(&config(100, &[(Class::Standard, 50)], &[])).unwrap();
    core.admit(1, Class::Unreplicated, 90).unwrap();
    assert!(core.admit(2, Class::Standard, 20).is_err());
    assert!(core.admit(3, Class::Unreplicated, 20).is_err());
    assert_eq!(core.evict_for(1), []);
    assert_eq!(core.reclassify(1, Class::Standard), Ok(Some(vec![])));
    assert_eq!(ids(&core.admit(2, Class::Standard, 20).unwrap()), [1]);
}

#[test]
fn a_refused_change_of_class_changes_nothing() {
    let mut core = EvictionCore::new(&config(100, &[], &[(Class::Pinned, 10)])).unwrap();
    core.admit(1, Class::Unreplicated, 20).unwrap();
    let no_room = AdmitError::NoRoom { class: Class::Pinned, bytes: 20 };
    assert_eq!(core.reclassify(1, Class::Pinned), Err(no_room));
    assert_eq!(core.get(1), Some((Class::Unreplicated, 20)));
    assert_eq!(core.reclassify(2, Class::Pinned), Ok(None));
}

#[test]
fn freeing_space_goes_below_floors_last() {
    let mut core = EvictionCore::new(&config(100, &[(Class::Prefetch, 20)], &[])).unwrap();
    core.admit(1, Class::Prefetch, 20).unwrap();
    core.admit(2, Class::Pinned, 30).unwrap();
    assert_eq!(ids(&core.evict_for(30)), [2]);
    assert_eq!(ids(&core.evict_for(1)), [1]);
    assert_eq!(core.used_bytes(), 0);
}

#[test]
fn shares_that_contradict_each_other_are_refused() {
    let above = ConfigError::FloorAboveCap { class: Class::Pinned, floor_bytes: 20, cap_bytes: 10 };
    let core = EvictionCore::<u32>::new(&config(100, &[(Class::Pinned, 20)], &[(Class::Pinned, 10)]));
    assert_eq!(core.err(), Some(above));

    let floors = [(Class::Pinned, 60), (Class::Standard, 60)];
    let core = EvictionCore::<u32>::new(&config(100, &floors, &[]));
    assert_eq!(core.err(), Some(ConfigError::Floors { floors_bytes: 120, capacity_bytes: 100 }));

    let mut config = EvictionConfig::with_capacity(1_999);
    config.floors.insert(Class::Critical, Share::PerMille(500));
    assert_eq!(config.bounds().unwrap()[Class::Critical.index()].floor_bytes, 999);
    config.floors.insert(Class::Critical, Share::PerMille(1_001));
    assert_eq!(config.bounds().err(), Some(ConfigError::Fraction { class: Class::Critical }));
}

/// An unsorted list and the rules as they read; every eviction scans it all.
#[derive(Clone)]
struct Model {
    capacity: u64,
    bounds: [Bounds; 6],
    list: Vec<(Class, u64, u64, u32, u64)>,
    clock: u64,
}

impl Model {
    fn used(&self, class: Class) -> u64 {
        self.list.iter().filter(|entry| entry.0 == class).map(|entry| entry.4).sum()
    }

    fn total(&self) -> u64 {
        self.list.iter().map(|entry| entry.4).sum()
    }

    fn evict_least(&mut self, may: impl Fn(&Self, Class) -> bool) -> Option<u32> {
        let evictable = |class| class != Class::Unreplicated && may(self, class);
        let least = self.list.iter().filter(|entry| evictable(entry.0)).min().copied()?;
        self.list.retain(|entry| *entry != least);
        Some(least.3)
    }

    fn above_floor(&self, class: Class) -> bool {
        self.used(class) > self.bounds[class.index()].floor_bytes
    }

    fn make_room(&mut self, class: Class, bytes: u64, growth: u64) -> Option<Vec<u32>> {
        let mut victims = Vec::new();
        while self.used(class) + bytes > self.bounds[class.index()].cap_bytes {
            victims.push(self.evict_least(|_, other| other == class)?);
        }
        while self.total() + growth > self.capacity {
            let within = self.used(class) + bytes <= self.bounds[class.index()].floor_bytes;
            victims.push(self.evict_least(|model, other| match other.cmp(&class) {
                std::cmp::Ordering::Less => model.above_floor(other),
                std::cmp::Ordering::Equal => !within,
                std::cmp::Ordering::Greater => within && model.above_floor(other),
            })?);
        }
        Some(victims)
    }

    fn admit(&mut self, id: u32, class: Class, bytes: u64) -> Option<Vec<u32>> {
        if self.list.iter().any(|entry| entry.3 == id) {
            return None;
        }
        let mut after = self.clone();
        let victims = after.make_room(class, bytes, bytes)?;
        after.clock += 1;
        after.list.push((class, after.clock, after.clock, id, bytes));
        *self = after;
        Some(victims)
    }

    fn reclassify(&mut self, id: u32, class: Class) -> Option<Vec<u32>> {
        let mut after = self.clone();
        let place = after.list.iter().position(|entry| entry.3 == id)?;
        let entry = after.list.swap_remove(place);
        let victims = after.make_room(class, entry.4, 0)?;
        after.list.push((class, entry.1, entry.2, id, entry.4));
        *self = after;
        Some(victims)
    }

    fn evict_for(&mut self, bytes: u64) -> Vec<u32> {
        let mut victims = Vec::new();
        let target = self.total().saturating_sub(bytes);
        while self.total() > target {
            let victim = self.evict_least(Self::above_floor).or_else(|| self.evict_least(|_, _| true));
            let Some(victim) = victim else { break };
            victims.push(victim);
        }
        victims
    }
}

#[derive(Debug, Clone)]
enum Op {
    Admit(u32, Class, u64),
    Touch(u32),
    Reclassify(u32, Class),
    Remove(u32),
    EvictFor(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let class = || proptest::sample::select(&Class::ALL[..]);
    let id = || 0_u32..40;
    prop_oneof![
        8 => (id(), class(), 1_u64..60).prop_map(|(id, class, bytes)| Op::Admit(id, class, bytes)),
        4 => id().prop_map(Op::Touch),
        2 => (id(), class()).prop_map(|(id, class)| Op::Reclassify(id, class)),
        1 => id().prop_map(Op::Remove),
        1 => (0_u64..120).prop_map(Op::EvictFor),
    ]
}

fn any_config() -> impl Strategy<Value = EvictionConfig> {
    // Floors of at most 160 thousandths each: six of them fit.
    let floors = proptest::collection::btree_map(proptest::sample::select(&Class::ALL[..]), 0_u16..=160, 0..6);
    let caps = proptest::collection::btree_map(proptest::sample::select(&Class::ALL[..]), 160_u16..=1_000, 0..4);
    (100_u64..600, floors, caps).prop_map(|(capacity_bytes, floors, caps)| EvictionConfig {
        capacity_bytes,
        floors: floors.into_iter().map(|(class, part)| (class, Share::PerMille(part))).collect(),
        caps: caps.into_iter().map(|(class, part)| (class, Share::PerMille(part))).collect(),
    })
}

/// Applies `op` to the core; the victims, or `None` where it is refused or has nothing to work on.
fn apply(core: &mut EvictionCore<u32>, op: &Op) -> Option<Vec<Victim<u32>>> {
    match *op {
        Op::Admit(id, class, bytes) => core.admit(id, class, bytes).ok(),
        Op::Touch(id) => core.touch(id).then(Vec::new),
        Op::Reclassify(id, class) => core.reclassify(id, class).ok().flatten(),
        Op::Remove(id) => core.remove(id).map(|_| Vec::new()),
        Op::EvictFor(bytes) => Some(core.evict_for(bytes)),
    }
}

fn apply_model(model: &mut Model, op: &Op) -> Option<Vec<u32>> {
    match *op {
        Op::Admit(id, class, bytes) => model.admit(id, class, bytes),
        Op::Touch(id) => {
            let entry = model.list.iter_mut().find(|entry| entry.3 == id)?;
            model.clock += 1;
            entry.1 = model.clock;
            Some(Vec::new())
        }
        Op::Reclassify(id, class) => model.reclassify(id, class),
        Op::Remove(id) => {
            let place = model.list.iter().position(|entry| entry.3 == id)?;
            model.list.swap_remove(place);
            Some(Vec::new())
        }
        Op::EvictFor(bytes) => Some(model.evict_for(bytes)),
    }
}

proptest! {
    #[test]
    fn equals_the_model(config in any_config(), ops in proptest::collection::vec(any_op(), 1..120)) {
        let mut core = EvictionCore::new(&config).unwrap();
        let bounds = config.bounds().unwrap();
        let mut model = Model { capacity: config.capacity_bytes, bounds, list: Vec::new(), clock: 0 };
        for op in &ops {
            let victims = apply(&mut core, op).map(|victims| ids(&victims));
            prop_assert_eq!(&victims, &apply_model(&mut model, op), "{:?}", op);

            model.list.sort();
            let order: Vec<_> = model.list.iter().map(|entry| entry.3).collect();
            prop_assert_eq!(core.ids().collect::<Vec<_>>(), order);
            prop_assert_eq!(core.used_bytes(), model.total());
            prop_assert!(core.used_bytes() <= core.capacity_bytes());
            for class in Class::ALL {
                prop_assert!(core.class_bytes(class) <= bounds[class.index()].cap_bytes);
            }
        }
    }

    #[test]
    fn a_higher_class_never_loses_to_a_lower_one_above_its_floor(
        config in any_config(),
        ops in proptest::collection::vec(any_op(), 1..120),
    ) {
        let mut core = EvictionCore::new(&config).unwrap();
        let bounds = config.bounds().unwrap();
        for op in &ops {
            let before = core.clone();
            let victims = apply(&mut core, op).unwrap_or_default();
            prop_assert!(victims.iter().all(|victim| victim.class != Class::Unreplicated));
            if let Op::Admit(_, class, _) = *op {
                let above = core.class_bytes(class) > bounds[class.index()].floor_bytes;
                let lost_higher = victims.iter().any(|victim| victim.class > class);
                prop_assert!(!(above && lost_higher), "{:?} took from a higher class", op);
            }
            // While a lower class stays above its floor, no entry of a higher one went for lack of room.
            let over_cap = |class: Class| before.class_bytes(class) + 60 > bounds[class.index()].cap_bytes;
            for victim in victims.iter().filter(|victim| !over_cap(victim.class)) {
                let spared = Class::ALL.into_iter().filter(|class| *class < victim.class && class.is_evictable());
                for class in spared {
                    prop_assert!(core.class_bytes(class) <= bounds[class.index()].floor_bytes
                        || matches!(*op, Op::Admit(_, newcomer, _) if newcomer == class));
                }
            }
        }
    }

    #[test]
    fn the_same_trace_gives_the_same_evictions(config in any_config(), ops in proptest::collection::vec(any_op(), 1..120)) {
        let run = || {
            let mut core = EvictionCore::new(&config).unwrap();
            ops.iter().map(|op| apply(&mut core, op)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

//! Bounds, order of victims, and many threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_cas::sync::bounded;
use forebay_cas::task;
use proptest::prelude::*;

use super::*;

type Numbers = Cache<u32, u32>;

fn fill(cache: &Numbers, key: u32, bytes: u64, room: Room) -> bool {
    match cache.claim(key, bytes, room) {
        Claim::Mine(ticket) => {
            ticket.fill(key, bytes);
            true
        }
        _ => false,
    }
}

fn damaged() -> ReadError {
    ReadError::Tree { path: b"test".to_vec() }
}

#[test]
fn the_oldest_goes_first_and_what_is_used_up_before_it() {
    let cache = Numbers::new(30);
    for key in 1..=3 {
        assert!(fill(&cache, key, 10, Room::Wait));
    }
    cache.peek(1);
    assert!(fill(&cache, 4, 10, Room::Wait));
    assert_eq!((cache.peek(2), cache.peek(3).as_deref()), (None, Some(&3)));
    cache.use_up(3);
    assert!(fill(&cache, 5, 10, Room::Wait));
    assert_eq!((cache.peek(3), cache.peek(1).as_deref()), (None, Some(&1)));
    assert_eq!(cache.bytes(), (30, 0));
}

#[test]
fn what_is_read_ahead_has_half_and_its_oldest_goes_for_the_next() {
    let cache = Numbers::new(40);
    assert!(fill(&cache, 1, 10, Room::Ahead));
    assert!(fill(&cache, 2, 10, Room::Ahead));
    assert!(fill(&cache, 3, 10, Room::Ahead));
    assert!(cache.peek(1).is_none(), "the share is 20 bytes");
    // What was used is no longer ahead.
    cache.peek(2);
    assert!(fill(&cache, 4, 10, Room::Ahead));
    assert_eq!(cache.bytes(), (30, 0));
    // Something larger than the share is not read ahead at all.
    assert!(!fill(&cache, 5, 21, Room::Ahead));
    // Reading ahead of what is here changes nothing.
    assert!(matches!(cache.claim(2, 10, Room::Ahead), Claim::Full));
}

#[test]
fn what_is_being_read_counts_and_is_waited_for() {
    let cache = Arc::new(Numbers::new(20));
    let Claim::Mine(one) = cache.claim(1, 15, Room::Wait) else { panic!("nobody reads it") };
    assert_eq!(cache.bytes(), (0, 15));
    assert!(matches!(cache.claim(2, 10, Room::Try), Claim::Full));
    let (told, heard) = bounded(1);
    let waiter = task::spawn("waiter", {
        let cache = Arc::clone(&cache);
        move || {
            told.send(()).unwrap();
            fill(&cache, 2, 10, Room::Wait)
        }
    });
    heard.recv().unwrap();
    one.fill(1, 15);
    assert!(waiter.join().unwrap());
    assert_eq!(cache.bytes(), (10, 0));
}

#[test]
fn something_larger_than_everything_is_kept_alone_until_the_next() {
    let cache = Numbers::new(20);
    assert!(fill(&cache, 1, 10, Room::Wait));
    assert!(fill(&cache, 2, 50, Room::Wait));
    assert_eq!(cache.bytes(), (50, 0));
    assert!(fill(&cache, 3, 10, Room::Wait));
    assert_eq!(cache.bytes(), (10, 0));
}

#[test]
fn a_failure_reaches_those_who_wait_and_nobody_later() {
    let cache = Arc::new(Numbers::new(20));
    let Claim::Mine(ticket) = cache.claim(1, 5, Room::Wait) else { panic!("nobody reads it") };
    let Claim::Theirs(flight) = cache.claim(1, 5, Room::Wait) else { panic!("somebody reads it") };
    ticket.fail(&Arc::new(damaged()));
    assert!(matches!(cache.wait(1, &flight), Some(Err(_))));
    let again = cache.get_or_load(1, |_| 5, || Ok(7));
    assert_eq!(again.ok().as_deref(), Some(&7));
    assert_eq!(cache.bytes(), (5, 0));
}

#[test]
fn a_reader_that_gives_up_or_panics_leaves_it_to_another() {
    let cache = Numbers::new(20);
    let Claim::Mine(ticket) = cache.claim(1, 5, Room::Wait) else { panic!("nobody reads it") };
    let Claim::Theirs(flight) = cache.claim(1, 5, Room::Wait) else { panic!("somebody reads it") };
    drop(ticket);
    assert!(cache.wait(1, &flight).is_none());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cache.get_or_load(1, |_| 5, || -> Result<u32, ReadError> { panic!("a test of panics") }).is_ok()
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.bytes(), (0, 0));
    assert!(fill(&cache, 1, 5, Room::Wait));
}

#[test]
fn one_thread_reads_and_all_have_it() {
    let cache = Arc::new(Numbers::new(1000));
    let loads = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (cache, loads) = (Arc::clone(&cache), Arc::clone(&loads));
            task::spawn(&format!("reader-{number}"), move || {
                for key in 0..200 {
                    let value = cache.get_or_load(
                        key,
                        |_| 1,
                        || {
                            loads.fetch_add(1, Ordering::Relaxed);
                            Ok(key * 3)
                        },
                    );
                    assert_eq!(value.ok().as_deref(), Some(&(key * 3)));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(loads.load(Ordering::Relaxed), 200);
}

#[test]
fn many_threads_never_exceed_the_bound_and_never_wait_for_ever() {
    const CAPACITY: u64 = 64;
    let cache = Arc::new(Numbers::new(CAPACITY));
    let threads: Vec<_> = (0..8_u32)
        .map(|number| {
            let cache = Arc::clone(&cache);
            task::spawn(&format!("reader-{number}"), move || {
                for step in 0..2000_u32 {
                    let key = step.wrapping_mul(number + 7) % 40;
                    let bytes = u64::from(key % 20) + 1;
                    match cache.claim(key, bytes, if step % 3 == 0 { Room::Ahead } else { Room::Wait }) {
                        Claim::Mine(ticket) if step % 7 == 0 => ticket.fail(&Arc::new(damaged())),
                        Claim::Mine(ticket) => drop(ticket.fill(key, bytes)),
                        Claim::Theirs(flight) => drop(cache.wait(key, &flight)),
                        Claim::Ready(value) => assert_eq!(*value, key),
                        Claim::Full => {}
                    }
                    let (resident, reserved) = cache.bytes();
                    assert!(resident + reserved <= CAPACITY);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(cache.bytes().1, 0);
}

#[test]
fn a_wait_ends_when_the_reader_is_slow() {
    let cache = Arc::new(Numbers::new(20));
    let Claim::Mine(ticket) = cache.claim(1, 5, Room::Wait) else { panic!("nobody reads it") };
    let waiter = task::spawn("waiter", {
        let cache = Arc::clone(&cache);
        move || cache.get_or_load(1, |_| 5, || Err(damaged())).ok().as_deref().copied()
    });
    let (_open, never) = bounded::<()>(0);
    let _late = never.recv_timeout(Duration::from_millis(30));
    ticket.fill(9, 5);
    assert_eq!(waiter.join().unwrap(), Some(9));
}

proptest! {
    /// One thread against a plain count: bytes add up, nothing that is kept is lost, half is the most that is ahead.
    #[test]
    fn bytes_add_up(ops in proptest::collection::vec((0_u32..12, 0_u8..5), 1..200)) {
        let cache = Numbers::new(60);
        for (key, op) in ops {
            let bytes = u64::from(key) + 1;
            match op {
                0 => { cache.use_up(key); }
                1 => { cache.peek(key); }
                2 => { fill(&cache, key, bytes, Room::Ahead); }
                _ => {
                    fill(&cache, key, bytes, Room::Wait);
                    prop_assert_eq!(cache.peek(key).map(|value| *value), Some(key));
                }
            }
            let state = cache.state.lock();
            let (mut resident, mut ahead) = (0, 0);
            for (key, slot) in &state.slots {
                let Slot::Ready { bytes, place, .. } = slot else { continue };
                resident += bytes;
                ahead += if place.0 == Rank::Ahead { *bytes } else { 0 };
                prop_assert_eq!(state.order.get(place), Some(key));
            }
            prop_assert_eq!(state.order.len(), state.slots.len());
            prop_assert_eq!((state.resident, state.ahead, state.reserved), (resident, ahead, 0));
            prop_assert!(resident <= 60 && ahead <= 30);
        }
    }
}

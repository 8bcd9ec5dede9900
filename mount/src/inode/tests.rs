//! Stability, collisions and reference counts, the last against a model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Seven numbers for all paths, of which two are reserved: collisions everywhere.
fn tiny_hash(place: &Place, attempt: u32) -> Ino {
    const NUMBERS: [u64; 7] = [0, 50, 51, 0xffff_ffff, 52, 53, 54];
    let sum = place.name.iter().fold(place.parent.0, |sum, byte| sum * 5 % 7 + u64::from(*byte));
    Ino(NUMBERS[((sum + u64::from(attempt)) % 7) as usize])
}

/// The paths `p` and `a` meet at 50, `p` and `q` at 51.
fn crossing_hash(place: &Place, attempt: u32) -> Ino {
    match (&*place.name, attempt) {
        (b"p" | b"a", 0) => Ino(50),
        (b"p" | b"q", 0..2) => Ino(51),
        _ => Ino(60 + u64::from(attempt)),
    }
}

#[test]
fn numbers_depend_on_the_path_alone() {
    let (mut one, mut two) = (InodeTable::new(), InodeTable::new());
    let a = one.lookup(Ino::ROOT, b"a").unwrap();
    let b = one.lookup(a, b"b").unwrap();
    two.lookup(Ino::ROOT, b"b").unwrap();
    let a2 = two.lookup(Ino::ROOT, b"a").unwrap();
    two.lookup(a2, b"a").unwrap();
    assert_eq!((a, b), (a2, two.lookup(a2, b"b").unwrap()));
    // Golden: a change of the hash renumbers every mount.
    assert_eq!(a.get(), GOLDEN_A);
}

#[test]
fn a_listing_shows_the_number_that_a_lookup_gives() {
    let mut table = InodeTable::new();
    let listed = table.number(Ino::ROOT, b"file").unwrap();
    assert!(table.is_empty());
    assert_eq!(table.lookup(Ino::ROOT, b"file"), Ok(listed));
    assert_eq!(table.number(Ino::ROOT, b"file"), Ok(listed));
}

#[test]
fn a_collision_is_settled_and_stays_settled() {
    let mut table = InodeTable::with_hash(crossing_hash);
    let first = table.lookup(Ino::ROOT, b"a").unwrap();
    let second = table.lookup(Ino::ROOT, b"p").unwrap();
    assert_eq!((first.get(), second.get()), (50, 51));
    table.forget(first, 1).unwrap();
    table.forget(second, 1).unwrap();
    assert_eq!(table.number(Ino::ROOT, b"p"), Ok(second));
    assert_eq!(table.lookup(Ino::ROOT, b"p"), Ok(second));
    assert_eq!(table.lookup(Ino::ROOT, b"a"), Ok(first));
}

#[test]
fn a_path_whose_second_number_was_taken_has_one_node() {
    let mut table = InodeTable::with_hash(crossing_hash);
    let a = table.lookup(Ino::ROOT, b"a").unwrap();
    let p = table.lookup(Ino::ROOT, b"p").unwrap();
    table.forget(p, 1).unwrap();
    let q = table.lookup(Ino::ROOT, b"q").unwrap();
    assert_eq!(q, p);
    table.forget(a, 1).unwrap();
    let p = table.lookup(Ino::ROOT, b"p").unwrap();
    assert_eq!(p, a);
    table.forget(q, 1).unwrap();
    assert_eq!(table.lookup(Ino::ROOT, b"p"), Ok(p));
    assert_eq!(table.len(), 2);
}

#[test]
fn reserved_numbers_are_skipped_and_the_end_is_an_error() {
    let mut table = InodeTable::with_hash(tiny_hash);
    let numbers: BTreeSet<_> =
        [b"a", b"b", b"c", b"d", b"e"].map(|name| table.lookup(Ino::ROOT, name).unwrap().get()).into();
    assert_eq!(numbers, BTreeSet::from([50, 51, 52, 53, 54]));
    let error = InodeError::Exhausted { parent: Ino::ROOT, name: (*b"f").into() };
    assert_eq!(table.lookup(Ino::ROOT, b"f"), Err(error));
    assert_eq!(table.len(), 6);
}

#[test]
fn names_that_are_none_are_refused() {
    let mut table = InodeTable::new();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(table.lookup(Ino::ROOT, name), Err(InodeError::BadName { name: name.into() }));
    }
    table.lookup(Ino::ROOT, b"\xff\xfe...").unwrap();
    let stale = Ino::from_kernel(99);
    assert_eq!(table.lookup(stale, b"a"), Err(InodeError::Unknown { ino: stale }));
    assert_eq!(table.forget(stale, 1), Err(InodeError::Unknown { ino: stale }));
}

#[test]
fn a_folder_stays_while_something_below_it_does() {
    let mut table = InodeTable::new();
    let folder = table.lookup(Ino::ROOT, b"folder").unwrap();
    let file = table.lookup(folder, b"file").unwrap();
    table.forget(folder, 1).unwrap();
    assert_eq!(table.path(file), Some(vec![&b"folder"[..], b"file"]));
    let error = InodeError::ForgetTooMany { ino: file, lookups: 1, count: 2 };
    assert_eq!(table.forget(file, 2), Err(error));
    table.forget(file, 1).unwrap();
    assert!(table.is_empty());
    table.forget(Ino::ROOT, u64::MAX).unwrap();
    assert_eq!(table.path(Ino::ROOT), Some(vec![]));
}

/// The first 8 bytes of BLAKE3 derive-key over 1, 0 and `a`, little endian.
const GOLDEN_A: u64 = 4_067_487_360_093_273_650;

#[derive(Debug, Clone)]
enum Op {
    /// Looks a name up in the folder that stands at this place among the live ones.
    Lookup(proptest::sample::Index, u8),
    Forget(proptest::sample::Index, u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (any::<proptest::sample::Index>(), b'a'..b'e').prop_map(|(folder, name)| Op::Lookup(folder, name)),
        2 => (any::<proptest::sample::Index>(), 1_u64..3).prop_map(|(node, count)| Op::Forget(node, count)),
    ]
}

/// Applies the operations to a table and to a plain list of paths with counts, and compares.
fn references_impl(mut table: InodeTable, ops: &[Op]) -> Result<(), TestCaseError> {
    // Path, number, references; the root first.
    let mut model: Vec<(Vec<u8>, Ino, u64)> = vec![(Vec::new(), Ino::ROOT, 1)];
    for op in ops {
        match op {
            Op::Lookup(folder, name) => {
                let (mut path, parent, _) = model[folder.index(model.len())].clone();
                let listed = table.number(parent, &[*name]);
                let found = table.lookup(parent, &[*name]);
                prop_assert_eq!(&found, &listed);
                let Ok(ino) = found else { continue };
                prop_assert!(ino.is_usable());
                path.push(*name);
                match model.iter_mut().find(|node| node.0 == path) {
                    Some(node) => {
                        prop_assert_eq!(node.1, ino);
                        node.2 += 1;
                    }
                    None => model.push((path, ino, 1)),
                }
            }
            Op::Forget(node, count) => {
                let place = node.index(model.len());
                let (_, ino, lookups) = model[place];
                let result = table.forget(ino, *count);
                if ino != Ino::ROOT {
                    prop_assert_eq!(result.is_ok(), lookups >= *count);
                    model[place].2 = lookups.checked_sub(*count).unwrap_or(lookups);
                }
            }
        }
        // Without references and without anything below: gone, the deepest first.
        while let Some(gone) = model.iter().position(|(path, _, lookups)| {
            *lookups == 0 && !model.iter().any(|(below, _, _)| below.len() > path.len() && below.starts_with(path))
        }) {
            model.remove(gone);
        }
        prop_assert_eq!(table.len(), model.len());
        let numbers: BTreeSet<_> = model.iter().map(|node| node.1).collect();
        prop_assert_eq!(numbers.len(), model.len());
        for (path, ino, _) in &model {
            prop_assert_eq!(table.path(*ino).map(|names| names.concat()), Some(path.clone()));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn references_proptest(ops in proptest::collection::vec(any_op(), 1..80)) {
        references_impl(InodeTable::new(), &ops)?;
    }

    #[test]
    fn references_with_collisions_proptest(ops in proptest::collection::vec(any_op(), 1..80)) {
        references_impl(InodeTable::with_hash(tiny_hash), &ops)?;
    }

    #[test]
    fn numbers_are_stable_and_usable(names in proptest::collection::btree_set(proptest::collection::vec(2_u8..=255, 1..9), 1..50)) {
        let names: Vec<_> = names.into_iter().filter(|name| !name.contains(&b'/') && !name.iter().all(|b| *b == b'.')).collect();
        let (mut forwards, mut backwards) = (InodeTable::new(), InodeTable::new());
        let numbers: Vec<_> = names.iter().map(|name| forwards.lookup(Ino::ROOT, name).unwrap()).collect();
        let again: Vec<_> = names.iter().rev().map(|name| backwards.lookup(Ino::ROOT, name).unwrap()).collect();
        prop_assert!(numbers.iter().eq(again.iter().rev()));
        prop_assert!(numbers.iter().all(|ino| ino.is_usable()));
        prop_assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}

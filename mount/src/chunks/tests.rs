//! Ranges of a file against its bytes: what is asked of the source, how it fails, and many readers.

use std::sync::atomic::Ordering;

use forebay_cas::sync::bounded;
use forebay_cas::task;
use forebay_format::{Content, FileDigest, FileEntry, HOLE_BLOCK, Hole};

use super::*;
use crate::fake::Fake;

const KIB: u64 = 1 << 10;

/// A file of ten chunks of 64 KiB with a hole in the middle, its bytes, and where they come from.
fn sample() -> (Fake, FileEntry, Vec<u8>) {
    let mut fake = Fake::default();
    let (mut bytes, mut refs) = (Vec::new(), Vec::new());
    for number in 0..10_u8 {
        if number == 5 {
            bytes.resize(bytes.len() + index(2 * HOLE_BLOCK), 0);
        }
        let chunk: Vec<u8> = (0..64 * KIB).map(|at| number.wrapping_mul(31) ^ (at % 251) as u8).collect();
        refs.push(ChunkRef { id: ChunkId::of(&chunk), len: 64 << 10 });
        bytes.extend_from_slice(&chunk);
        fake.chunks.insert(ChunkId::of(&chunk), chunk);
    }
    let holes = Some(vec![Hole { offset: 320 * KIB, len: 2 * HOLE_BLOCK }]);
    let (size, digest) = (bytes.len() as u64, FileDigest::of(&bytes));
    (fake, FileEntry { size, digest, content: Content::Chunks(refs), holes, hard_link: None }, bytes)
}

fn chunks(fake: Fake, bytes_max: u64) -> (Arc<Fake>, Chunks) {
    let fake = Arc::new(fake);
    (Arc::clone(&fake), Chunks::new(Arc::<Fake>::clone(&fake), bytes_max, 1 << 20))
}

fn read(chunks: &Chunks, layout: &Layout, range: Range<u64>, access: Access) -> Result<Vec<u8>, TreeError> {
    chunks.read(layout, &range, access, <[u8]>::to_vec)
}

#[test]
fn every_range_is_what_the_file_has_whatever_the_bound() {
    for bytes_max in [1, 100 * KIB, 1 << 20] {
        let (fake, file, bytes) = sample();
        let layout = Layout::of(&file);
        let (_, chunks) = chunks(fake, bytes_max);
        let edges: Vec<u64> = (0..=12).flat_map(|block| [block * 64 * KIB, block * 64 * KIB + 1]).collect();
        for from in &edges {
            for to in edges.iter().filter(|to| *to > from) {
                let range = *from..(*to).min(file.size);
                if !range.is_empty() {
                    let got = read(&chunks, &layout, range.clone(), Access::Load).unwrap();
                    assert_eq!(got, bytes[index(range.start)..index(range.end)], "{range:?}");
                    assert!(chunks.bytes().0 <= bytes_max.max(64 * KIB));
                }
            }
        }
    }
}

#[test]
fn neighbours_come_in_one_request_and_once() {
    let (fake, file, bytes) = sample();
    let (fake, chunks) = chunks(fake, 1 << 20);
    let layout = Layout::of(&file);
    assert!(matches!(read(&chunks, &layout, 0..10, Access::Cached), Err(TreeError::NotCached)));
    assert_eq!(fake.requests.load(Ordering::Relaxed), 0);
    assert_eq!(read(&chunks, &layout, 10..file.size, Access::Load).unwrap(), bytes[10..]);
    assert_eq!((fake.requests.load(Ordering::Relaxed), fake.pieces.load(Ordering::Relaxed)), (1, 10));
    assert_eq!(read(&chunks, &layout, 0..file.size, Access::Cached).unwrap(), bytes);
    assert_eq!(fake.requests.load(Ordering::Relaxed), 1);
}

#[test]
fn holes_are_zeros_and_ask_for_nothing() {
    let (fake, file, _) = sample();
    let (fake, chunks) = chunks(fake, 1 << 20);
    let layout = Layout::of(&file);
    // The buffer has been used before.
    read(&chunks, &layout, 0..file.size, Access::Load).unwrap();
    let (before, hole) = (fake.requests.load(Ordering::Relaxed), 320 * KIB..448 * KIB);
    assert_eq!(read(&chunks, &layout, hole, Access::Cached).unwrap(), vec![0; 128 << 10]);
    assert_eq!(fake.requests.load(Ordering::Relaxed), before);
}

#[test]
fn a_damaged_chunk_fails_the_reads_that_want_it_and_heals() {
    let (fake, file, bytes) = sample();
    let bad = match &file.content {
        Content::Chunks(refs) => refs[2].id,
        _ => unreachable!(),
    };
    let (fake, chunks) = chunks(fake, 1 << 20);
    let layout = Layout::of(&file);
    fake.damaged.lock().push(bad);
    assert!(matches!(read(&chunks, &layout, 0..file.size, Access::Load), Err(TreeError::Read(_))));
    // Everything that was asked for together with it is there.
    let before = fake.requests.load(Ordering::Relaxed);
    assert_eq!(read(&chunks, &layout, 192 * KIB..file.size, Access::Load).unwrap(), bytes[192 << 10..]);
    assert_eq!(read(&chunks, &layout, 0..128 * KIB, Access::Load).unwrap(), bytes[..128 << 10]);
    assert_eq!(fake.requests.load(Ordering::Relaxed), before);
    assert!(read(&chunks, &layout, 128 * KIB..128 * KIB + 1, Access::Load).is_err());
    fake.damaged.lock().clear();
    assert_eq!(read(&chunks, &layout, 0..file.size, Access::Load).unwrap(), bytes);
}

#[test]
fn reading_ahead_past_a_damaged_chunk_brings_the_others() {
    let (fake, file, bytes) = sample();
    let bad = match &file.content {
        Content::Chunks(refs) => refs[7].id,
        _ => unreachable!(),
    };
    let (fake, chunks) = chunks(fake, 2 << 20);
    let layout = Layout::of(&file);
    fake.damaged.lock().push(bad);
    assert!(chunks.read_ahead(&[(&layout, 0..file.size)]).is_err());
    assert_eq!(read(&chunks, &layout, 0..512 * KIB, Access::Cached).unwrap(), bytes[..512 << 10]);
    assert!(matches!(read(&chunks, &layout, 0..file.size, Access::Cached), Err(TreeError::NotCached)));
    assert!(chunks.bytes().1 == 0, "nothing is being read any more");
}

#[test]
fn a_crowd_reads_each_chunk_once() {
    let (fake, file, bytes) = sample();
    let (open, gate) = bounded::<()>(0);
    *fake.gate.lock() = Some(gate);
    let (fake, chunks) = chunks(fake, 4 << 20);
    let (chunks, layout, bytes) = (Arc::new(chunks), Arc::new(Layout::of(&file)), Arc::new(bytes));
    let readers: Vec<_> = (0..8_u64)
        .map(|number| {
            let (chunks, layout, bytes) = (Arc::clone(&chunks), Arc::clone(&layout), Arc::clone(&bytes));
            task::spawn(&format!("reader-{number}"), move || {
                // Overlapping ranges in different orders: nobody may wait for somebody who waits for him.
                for step in 0..10 {
                    let from = (number * 3 + step * 7) % 10 * 64 * KIB;
                    let range = from..(from + 200 * KIB).min(layout.size());
                    let got = read(&chunks, &layout, range.clone(), Access::Load).unwrap();
                    assert_eq!(got, bytes[index(range.start)..index(range.end)]);
                }
            })
        })
        .collect();
    drop(open);
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(fake.pieces.load(Ordering::Relaxed), 10);
}

#[test]
fn a_crowd_with_too_little_memory_still_reads_right() {
    let (fake, file, bytes) = sample();
    let (_, chunks) = chunks(fake, 130 * KIB);
    let (chunks, layout, bytes) = (Arc::new(chunks), Arc::new(Layout::of(&file)), Arc::new(bytes));
    let readers: Vec<_> = (0..8_u64)
        .map(|number| {
            let (chunks, layout, bytes) = (Arc::clone(&chunks), Arc::clone(&layout), Arc::clone(&bytes));
            task::spawn(&format!("reader-{number}"), move || {
                for step in 0..100 {
                    let from = (number * 131 + step * 77) * 1013 % (layout.size() - 1);
                    let range = from..(from + 150 * KIB).min(layout.size());
                    let got = read(&chunks, &layout, range.clone(), Access::Load).unwrap();
                    assert_eq!(got, bytes[index(range.start)..index(range.end)]);
                    let (resident, reserved) = chunks.bytes();
                    assert!(resident + reserved <= 130 * KIB, "{resident} {reserved}");
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn a_chunk_of_another_length_is_refused() {
    let (fake, mut file, _) = sample();
    if let Content::Chunks(refs) = &mut file.content {
        refs[9].len = 1;
        file.size -= 64 * KIB - 1;
    }
    let (_, chunks) = chunks(fake, 1 << 20);
    let end = file.size;
    // The real source refuses it; this one hands it out, as a cache would that has it from another file.
    assert!(read(&chunks, &Layout::of(&file), end - 1..end, Access::Load).is_err());
}

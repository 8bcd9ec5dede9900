use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use forebay_format::{Codec, StoredId};
use forebay_policy::eviction::Share;

use super::*;

fn frame(number: u64, len: usize) -> (FrameHeader, Bytes) {
    let mut payload = vec![0; len];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut payload);
    let stored_len = u32::try_from(len).unwrap();
    let header = FrameHeader {
        kind: FrameKind::Data,
        codec: Codec::Raw,
        depth: 0,
        id: ChunkId::of(&payload),
        base: None,
        stored_id: StoredId::of(&payload),
        plain_len: stored_len,
        stored_len,
    };
    (header, payload.into())
}

fn put(store: &Store, number: u64, len: usize, class: Class) -> ChunkId {
    let (header, payload) = frame(number, len);
    store.put(&header, &payload, class);
    header.id
}

fn disk_bytes(folder: &Path) -> u64 {
    let extents = std::fs::read_dir(folder.join("extents")).unwrap();
    extents.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

fn has(store: &Store, number: u64, len: usize) -> bool {
    let (header, payload) = frame(number, len);
    let found = store.get(header.id, FrameKind::Data);
    if let Some(found) = &found {
        assert_eq!((&found.header, &found.payload), (&header, &payload));
    }
    found.is_some()
}

#[test]
fn frames_come_back_and_the_capacity_is_hard() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &EvictionConfig::with_capacity(4 << 20)).unwrap();
    for number in 0..200 {
        put(&store, number, 100_000, Class::Standard);
        assert!(disk_bytes(folder.path()) <= 4 << 20, "after {number}");
        assert!(store.stats().used_bytes <= 4 << 20);
    }
    assert!(has(&store, 199, 100_000) && !has(&store, 0, 100_000));
    assert_eq!(store.stats().entries, (4 << 20) / 102_400);
}

#[test]
fn what_was_kept_is_there_after_a_start_with_and_without_places() {
    let folder = tempfile::tempdir().unwrap();
    let config = EvictionConfig::with_capacity(8 << 20);
    {
        let store = Store::open(folder.path(), &config).unwrap();
        for number in 0..100 {
            put(&store, number, 50_000, Class::Standard);
        }
        put(&store, 1000, 3_000, Class::Critical);
        let mut busy = Store::open(folder.path(), &config);
        assert!(matches!(busy, Err(StoreError::InUse { .. })), "{busy:?}");
        busy = Err(StoreError::InUse { folder: PathBuf::new() });
        drop(busy);
    }
    for remove_places in [false, true, false] {
        if remove_places {
            std::fs::remove_dir_all(folder.path().join("places")).unwrap();
        }
        let store = Store::open(folder.path(), &config).unwrap();
        assert!((0..100).all(|number| has(&store, number, 50_000)), "places removed: {remove_places}");
        assert!(has(&store, 1000, 3_000));
        assert_eq!(store.core.lock().class_bytes(Class::Critical), 4096);
    }
    // Less room than before: the oldest go.
    let store = Store::open(folder.path(), &EvictionConfig::with_capacity(1 << 20)).unwrap();
    assert!(store.stats().used_bytes <= 1 << 20 && disk_bytes(folder.path()) <= 1 << 20);
    assert!(has(&store, 1000, 3_000), "a higher class stays");
}

#[test]
fn a_damaged_frame_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &EvictionConfig::with_capacity(1 << 20)).unwrap();
    let id = put(&store, 1, 10_000, Class::Standard);
    let place = store.inner.read().by_id[&id];
    // Its header: what is found there is not the frame.
    store.inner.read().extents[&place.extent].punch(place.offset, BLOCK).unwrap();
    assert!(store.get(id, FrameKind::Data).is_none());
    assert_eq!((store.stats().entries, store.stats().discarded), (0, 1));
    assert!(put(&store, 1, 10_000, Class::Standard) == id && has(&store, 1, 10_000));
}

#[test]
fn critical_survives_a_flood_of_opportunistic() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EvictionConfig::with_capacity(2 << 20);
    config.floors.insert(Class::Critical, Share::PerMille(500));
    let store = Store::open(folder.path(), &config).unwrap();
    for number in 0..10 {
        put(&store, number, 100_000, Class::Critical);
    }
    for number in 100..600 {
        put(&store, number, 100_000, Class::Opportunistic);
    }
    assert!((0..10).all(|number| has(&store, number, 100_000)));
}

//! Ranges of files with holes and lists, against a plain list of bytes.

use forebay_format::{ChunkId, FileDigest, HOLE_BLOCK, Hole};
use proptest::prelude::*;

use super::*;

fn file(size: u64, content: Content, holes: Vec<Hole>) -> FileEntry {
    let holes = Some(holes).filter(|holes| !holes.is_empty());
    FileEntry { size, digest: FileDigest::of(b""), content, holes, hard_link: None }
}

fn chunk(number: u8, len: u32) -> ChunkRef {
    ChunkRef { id: ChunkId::of(&[number]), len }
}

fn no_lists(_: &ListRef) -> Result<Arc<ListNode>, ReadError> {
    panic!("there are no lists")
}

#[test]
fn inline_files_and_empty_ones() {
    let layout = Layout::of(&file(3, Content::Inline(b"abc".to_vec()), vec![]));
    assert_eq!(layout.parts(&(1..2), &mut no_lists).unwrap(), [Part::Inline(0, b"abc")]);
    let layout = Layout::of(&file(0, Content::Inline(vec![]), vec![]));
    assert_eq!(layout.parts(&(0..0), &mut no_lists).unwrap(), []);
    assert_eq!((layout.data_at(0), layout.hole_at(0)), (None, None));
}

#[test]
fn holes_are_found_from_both_sides() {
    let hole = |offset, len| Hole { offset: offset * HOLE_BLOCK, len: len * HOLE_BLOCK };
    let content = Content::Chunks(vec![chunk(1, 1 << 16), chunk(2, 1 << 16), chunk(3, 1 << 16)]);
    // Hole, data, hole, data, hole.
    let layout = Layout::of(&file(7 << 16, content, vec![hole(0, 1), hole(3, 2), hole(6, 1)]));
    let at = |block: u64| block << 16;
    assert_eq!(layout.data_at(0), Some(at(1)));
    assert_eq!(layout.data_at(at(1) + 5), Some(at(1) + 5));
    assert_eq!(layout.data_at(at(3)), Some(at(5)));
    assert_eq!(layout.data_at(at(6)), None);
    assert_eq!(layout.hole_at(5), Some(5));
    assert_eq!(layout.hole_at(at(1)), Some(at(3)));
    assert_eq!(layout.hole_at(at(5) + 1), Some(at(6)));
    assert_eq!(layout.hole_at(at(7) - 1), Some(at(7) - 1));
    assert_eq!(layout.hole_at(at(7)), None);
    let parts = layout.parts(&(at(2)..at(6)), &mut no_lists).unwrap();
    assert_eq!(parts, [Part::Chunk(at(2), chunk(2, 1 << 16)), Part::Chunk(at(5), chunk(3, 1 << 16))]);
}

#[test]
fn a_chunk_over_a_hole_is_refused() {
    let holes = vec![Hole { offset: HOLE_BLOCK, len: HOLE_BLOCK }];
    let content = Content::Chunks(vec![chunk(1, 1 << 17)]);
    let layout = Layout::of(&file(3 << 16, content, holes));
    for range in [0..1, (2 << 16)..(3 << 16)] {
        assert!(matches!(layout.parts(&range, &mut no_lists), Err(ReadError::Content { .. })));
    }
}

#[test]
fn a_list_of_the_wrong_height_is_refused() {
    let list = ListRef { id: ChunkId::of(b"list"), bytes: 100 };
    let node = Arc::new(ListNode::Chunks(vec![chunk(1, 100)]));
    let layout = Layout::of(&file(100, Content::Lists(2, vec![list]), vec![]));
    let found = layout.parts(&(0..1), &mut |_: &ListRef| Ok::<_, ReadError>(Arc::clone(&node)));
    assert!(matches!(found, Err(ReadError::Content { .. })));
}

/// Lengths of extents with the chunks in each, and whether a hole stands before it.
fn any_extents() -> impl Strategy<Value = Vec<(bool, Vec<u32>)>> {
    proptest::collection::vec((any::<bool>(), proptest::collection::vec(1_u32..4, 1..5)), 1..6)
}

/// Compares every part of ranges with the chunk that each byte lies in. Lengths are in hole blocks.
fn parts_impl(extents: &[(bool, Vec<u32>)], with_lists: bool, from: u64, len: u64) -> Result<(), TestCaseError> {
    let block = u32::try_from(HOLE_BLOCK).unwrap();
    let (mut chunks, mut holes, mut wanted, mut size) = (Vec::new(), Vec::<Hole>::new(), Vec::new(), 0);
    for (number, (hole_before, lens)) in extents.iter().enumerate() {
        if *hole_before || number > 0 {
            holes.push(Hole { offset: size, len: HOLE_BLOCK });
            size += HOLE_BLOCK;
        }
        for len in lens {
            let chunk = chunk(u8::try_from(chunks.len()).unwrap(), len * block);
            wanted.push((size, chunk));
            chunks.push(chunk);
            size += u64::from(chunk.len);
        }
    }
    let lists: Vec<ListNode> = chunks.chunks(3).map(|chunks| ListNode::Chunks(chunks.to_vec())).collect();
    let sum = |list: &ListNode| match list {
        ListNode::Chunks(chunks) => chunks.iter().map(|chunk| u64::from(chunk.len)).sum(),
        ListNode::Lists(_) => 0,
    };
    let id_of = |number: usize| ChunkId::of(&[200, u8::try_from(number).unwrap()]);
    let refs = lists.iter().enumerate().map(|(number, list)| ListRef { id: id_of(number), bytes: sum(list) });
    let content = if with_lists { Content::Lists(1, refs.collect()) } else { Content::Chunks(chunks) };
    let layout = Layout::of(&file(size, content, holes));
    let mut read = 0;
    let mut load = |list: &ListRef| {
        read += 1;
        let number = (0..lists.len()).find(|number| id_of(*number) == list.id).unwrap();
        Ok::<_, ReadError>(Arc::new(lists[number].clone()))
    };
    let range = (from % size)..(from % size + len).min(size);
    let parts = layout.parts(&range, &mut load).unwrap();
    let overlaps = |(start, chunk): &&(u64, ChunkRef)| *start < range.end && start + u64::from(chunk.len) > range.start;
    let wanted: Vec<_> = wanted.iter().filter(overlaps).map(|(start, chunk)| Part::Chunk(*start, *chunk)).collect();
    prop_assert_eq!(&parts, &wanted);
    // Lists that have nothing of the range are not read; one that two extents need is asked for twice.
    prop_assert!(read <= wanted.len() + extents.len());
    Ok(())
}

proptest! {
    #[test]
    fn parts_proptest(extents in any_extents(), with_lists: bool, from: u64, len in 1_u64..1 << 20) {
        parts_impl(&extents, with_lists, from, len)?;
    }
}

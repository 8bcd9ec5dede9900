//! Requests and items: round trips, bounds, damage.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "helpers of tests are tests")]

#[expect(unreachable_pub, reason = "shared with the fuzz targets, where it is public")]
#[path = "../../../fuzz/src/wire.rs"]
mod bodies;

use bytes::Bytes;
use forebay_format::{ChunkId, Codec, FrameHeader, FrameKind, StoredId};
use forebay_transfer_proto::request::Reservation;
use forebay_transfer_proto::{Claim, From, Item, ItemReader, Reply, Request, Signed, Trouble};
use proptest::prelude::*;

fn signed(body: Vec<u8>) -> Signed {
    Signed { key: [3; 32], body, signature: [4; 64] }
}

fn frame(payload: &[u8]) -> Item {
    let header = FrameHeader {
        kind: FrameKind::Data,
        codec: Codec::Raw,
        depth: 0,
        id: ChunkId::of(payload),
        base: None,
        stored_id: StoredId::of(payload),
        plain_len: payload.len() as u32,
        stored_len: payload.len() as u32,
    };
    Item::Frame { from: From::Gateway, header, payload: Bytes::copy_from_slice(payload) }
}

fn items() -> Vec<Item> {
    vec![
        frame(b"water"),
        Item::Missing(ChunkId::of(b"gone")),
        Item::Reply(Reply::Done),
        Item::Reply(Reply::Reserved(7)),
        Item::Reply(Reply::Resolved(signed(vec![1, 2, 3]))),
        Item::Trouble { trouble: Trouble::Budget, message: "used up".to_owned() },
        frame(&[0; 70_000]),
    ]
}

fn requests() -> Vec<Request> {
    let claim = || signed(vec![9; 200]);
    let ids: Vec<ChunkId> = (0..1500_u32).map(|number| ChunkId::of(&number.to_le_bytes())).collect();
    let reservation = Reservation([5; 16]);
    vec![
        Request::Resolve { claim: claim(), name: "a/b".parse().unwrap(), version: String::new(), step: true },
        Request::Want {
            claim: claim(),
            kind: 1,
            reservation: Some(reservation),
            fresh: true,
            ids: ids.clone(),
            to: "site:x".to_owned(),
        },
        Request::Reserve { claim: claim(), reservation, ids, to: String::new(), avoided_bytes: 7 },
        Request::Release { claim: claim(), reservation },
        Request::Authorize { claim: claim() },
    ]
}

#[test]
fn items_survive_any_cutting_of_the_wire() {
    let mut wire = Vec::new();
    items().iter().for_each(|item| item.encode(&mut wire));
    for step in [1, 2, 5, 134, 1000, wire.len()] {
        let mut reader = ItemReader::default();
        let mut got = Vec::new();
        for part in wire.chunks(step) {
            reader.feed(Bytes::copy_from_slice(part));
            while let Some(item) = reader.next_item().unwrap() {
                got.push(item);
            }
        }
        assert_eq!(got, items(), "in parts of {step}");
        assert_eq!(reader.pending(), 0);
    }
}

#[test]
fn requests_round_trip_and_fit() {
    for request in requests() {
        let bytes = request.encode();
        assert!(bytes.len() <= forebay_transfer_proto::REQUEST_BYTES_MAX, "{} bytes", bytes.len());
        assert_eq!(Request::decode(&bytes).unwrap(), request);
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            assert!(Request::decode(&bytes[..cut]).is_err());
        }
    }
}

#[test]
fn requests_beyond_the_bounds_are_refused() {
    let claim = || signed(Vec::new());
    let many = vec![ChunkId::of(b"x"); 1501];
    let want =
        |kind, ids| Request::Want { claim: claim(), kind, reservation: None, fresh: false, ids, to: String::new() };
    for bad in [want(1, many), want(1, Vec::new()), want(9, vec![ChunkId::of(b"x")])] {
        assert!(Request::decode(&bad.encode()).is_err());
    }
    let version = "1".repeat(65);
    let bad = Request::Resolve { claim: claim(), name: "a".parse().unwrap(), version, step: false };
    assert!(Request::decode(&bad.encode()).is_err());
}

#[test]
fn a_claim_has_one_form_and_short_words() {
    let claim = Claim {
        repository: None,
        tenant: "t".to_owned(),
        job: String::new(),
        dataset: "d".to_owned(),
        class: "standard".to_owned(),
        tier: "10g".to_owned(),
        not_after: 1 << 33,
    };
    assert_eq!(Claim::decode(&claim.encode()).unwrap(), claim);
    let long = Claim { tenant: "x".repeat(256), ..claim };
    assert!(Claim::decode(&long.encode()).is_err());
}

/// A short fuzz of what peers send: the same inputs in every run.
#[test]
fn a_short_fuzz_of_the_wire() {
    let mut samples: Vec<Vec<u8>> = requests().iter().map(Request::encode).collect();
    for item in items().into_iter().take(6) {
        // The first byte says in which pieces the others come.
        let mut bytes = vec![40];
        item.encode(&mut bytes);
        samples.push(bytes);
    }
    // xorshift64*
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    };
    for round in 0..20_000 {
        let mut data = samples[round % samples.len()].clone();
        // Large lists are changed at their beginning, where the structure is.
        for _ in 0..below(4) {
            let reach = data.len().min(400);
            let at = below(reach);
            match below(5) {
                0 => data.truncate(below(data.len()) + 1),
                1 => data.insert(at, [0, 1, 0x7f, 0x80, 0xff, 0x9f, 0xbf, 0x5f][below(8)]),
                2 => data[at..(at + 8).min(reach)].fill(0xff),
                3 => data.swap(at, below(reach)),
                _ => data[at] = data[at].wrapping_add(1 << below(8)),
            }
            if data.is_empty() {
                data.push(0);
            }
        }
        bodies::TARGETS.iter().for_each(|(_, body)| body(&data));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic_or_hoard(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
        let mut reader = ItemReader::default();
        'wire: for part in parts {
            reader.feed(part.into());
            loop {
                match reader.next_item() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => break 'wire,
                }
            }
        }
    }

    #[test]
    fn flipped_requests_decode_to_themselves_or_not_at_all(which in 0..5_usize, at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = requests()[which].encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(), bytes);
        }
    }
}

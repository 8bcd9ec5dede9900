//! Round trips, refusals and hostile bytes for the messages.

use proptest::prelude::*;

use super::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&Limits::default(), &mut out).unwrap();
    out
}

fn decode_all(bytes: &[u8]) -> Result<Option<Message>, DecodeError> {
    Message::decode(&mut &bytes[..], &Limits::default())
}

fn any_ids() -> impl Strategy<Value = Vec<[u8; 32]>> {
    proptest::collection::vec(any::<[u8; 32]>(), 1..40)
}

fn any_message() -> impl Strategy<Value = Message> {
    let limits = Limits::FLOOR.fields().map(|(_, least)| least..=u32::MAX);
    prop_oneof![
        (any::<u32>(), limits)
            .prop_map(|(version, values)| Message::Hello { version, limits: Limits::from_fields(values) }),
        (any::<[u8; 16]>(), any_ids()).prop_map(|(repository, ids)| Message::Want { repository, ids }),
        any_ids().prop_map(|ids| Message::Have { ids }),
        any_ids().prop_map(|ids| Message::Missing { ids }),
        (1_u32..=4096, 4096_u32..=4 << 20).prop_map(|(frames, bytes)| Message::Run { frames, bytes }),
        proptest::sample::select(&ErrorClass::ALL[..]).prop_map(|class| Message::Error { class }),
    ]
}

#[test]
fn layout_is_fixed() {
    assert_eq!(encoded(&Message::Run { frames: 3, bytes: 1 << 20 }), [5, 5, 3, 0x80, 0x10, 0, 0]);
    assert_eq!(encoded(&Message::Error { class: ErrorClass::Budget }), [6, 1, 6]);
    let want = encoded(&Message::Want { repository: [9; 16], ids: vec![[1; 32]] });
    assert_eq!(want[..4], [2, 48, 9, 9]);
}

#[test]
fn an_unknown_type_is_refused_before_its_body_arrives() {
    assert_eq!(decode_all(&[7]), Err(DecodeError::UnknownType { kind: 7 }));
    assert_eq!(decode_all(&[0]), Err(DecodeError::UnknownType { kind: 0 }));
}

#[test]
fn a_long_body_is_refused_from_its_length_alone() {
    let mut bytes = vec![2];
    varint::encode(u64::from(u32::MAX), &mut bytes);
    let max = Limits::default().message_bytes_max;
    let violation = Violation::BodyTooLong { len: u64::from(u32::MAX), max };
    assert_eq!(decode_all(&bytes), Err(DecodeError::Violation(violation)));
}

#[test]
fn malformed_bodies_are_refused() {
    assert_eq!(decode_all(&[3, 31].into_iter().chain([0; 31]).collect::<Vec<_>>()), {
        Err(DecodeError::BadIdList { len: 31 })
    });
    assert_eq!(decode_all(&[2, 1, 0]), Err(DecodeError::BadIdList { len: 1 }));
    assert_eq!(decode_all(&[6, 1, 2]), Err(DecodeError::UnknownErrorClass { code: 2 }));
    assert_eq!(decode_all(&[6, 2, 1, 0]), Err(DecodeError::TrailingBytes { extra: 1 }));
    assert_eq!(decode_all(&[5, 1, 1]), Err(DecodeError::Varint(VarintError::Truncated { needed: 1 })));
    let empty = Violation::IdCount { count: 0, max: 1024 };
    assert_eq!(decode_all(&[4, 0]), Err(DecodeError::Violation(empty)));
    assert_eq!(decode_all(&[6, 8, 0xc0, 0, 0, 1, 0, 0, 0, 0]), { Err(DecodeError::NumberTooLarge { value: 1 << 32 }) });
}

#[test]
fn a_sender_keeps_to_the_limits_of_its_peer() {
    let limits = Limits { ids_max: 1, message_bytes_max: 256, ..Limits::default() };
    let mut out = Vec::new();
    let two = Message::Have { ids: vec![[0; 32]; 2] };
    assert_eq!(two.encode(&limits, &mut out), Err(EncodeError(Violation::IdCount { count: 2, max: 1 })));

    let limits = Limits { message_bytes_max: 256, ..Limits::default() };
    let nine = Message::Have { ids: vec![[0; 32]; 9] };
    assert_eq!(nine.encode(&limits, &mut out), Err(EncodeError(Violation::BodyTooLong { len: 288, max: 256 })));

    let run = Message::Run { frames: 2, bytes: 1 };
    let max = limits.run_bytes_max;
    assert_eq!(run.encode(&limits, &mut out), Err(EncodeError(Violation::RunBytes { frames: 2, bytes: 1, max })));
    assert!(out.is_empty());
}

#[test]
fn a_hello_with_useless_limits_is_refused() {
    let hello = Message::Hello { version: VERSION, limits: Limits { ids_max: 0, ..Limits::default() } };
    let mut out = Vec::new();
    assert!(matches!(hello.encode(&Limits::default(), &mut out), Err(EncodeError(Violation::Limits(_)))));
}

proptest! {
    #[test]
    fn round_trips_and_waits_for_every_prefix(message in any_message(), tail in any::<[u8; 3]>()) {
        let wire = encoded(&message);
        for cut in 0..wire.len() {
            prop_assert_eq!(decode_all(&wire[..cut]), Ok(None));
        }
        let mut stream = wire.clone();
        stream.extend_from_slice(&tail);
        let mut input = &stream[..];
        prop_assert_eq!(Message::decode(&mut input, &Limits::default()), Ok(Some(message)));
        prop_assert_eq!(input, &tail[..]);
    }

    #[test]
    fn hostile_bytes_never_panic_and_have_one_encoding(kind in 0_u8..8, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut stream = vec![kind];
        stream.extend(bytes);
        let mut input = &stream[..];
        match Message::decode(&mut input, &Limits::default()) {
            Ok(Some(message)) => prop_assert_eq!(&encoded(&message)[..], &stream[..stream.len() - input.len()]),
            Ok(None) | Err(_) => prop_assert_eq!(input.len(), stream.len()),
        }
    }
}

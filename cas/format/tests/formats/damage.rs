//! Flipped bits and cuts.

use crate::samples::samples;

#[test]
fn flipped_bits_are_found_wherever_the_object_protects_itself() {
    for sample in samples().into_iter().filter(|sample| sample.protects_itself()) {
        for bit in 0..sample.bytes.len() * 8 {
            let mut bad = sample.bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!(sample.decodes)(&bad), "{} bit {bit}", sample.name);
        }
    }
}

#[test]
fn cut_or_grown_objects_are_refused() {
    for sample in samples() {
        let (name, bytes) = (sample.name, &sample.bytes);
        for len in 0..bytes.len() {
            assert!(!(sample.decodes)(&bytes[..len]), "{name} cut to {len}");
            assert!(!(sample.decodes)(&bytes[bytes.len() - len..]), "the last {len} bytes of {name}");
        }
        assert!(!(sample.decodes)(&[&bytes[..], &[0]].concat()), "{name} with a byte more");
        assert!(!(sample.decodes)(&[&[0], &bytes[..]].concat()), "{name} behind a byte");
    }
}

#[test]
fn cut_or_grown_cbor_is_refused_behind_a_right_checksum() {
    for sample in samples() {
        let Some(range) = sample.cbor() else { continue };
        let cbor = &sample.bytes[range];
        assert!((sample.decodes)(&sample.with_cbor(cbor)), "{}", sample.name);
        for len in 0..cbor.len() {
            assert!(!(sample.decodes)(&sample.with_cbor(&cbor[..len])), "{} cut to {len}", sample.name);
        }
        for more in [0x00, 0x60, 0xa0, 0xf6, 0xff] {
            assert!(!(sample.decodes)(&sample.with_cbor(&[cbor, &[more]].concat())), "{} and {more:#x}", sample.name);
        }
    }
}

#[test]
fn no_object_passes_for_another() {
    for sample in samples() {
        for other in samples().iter().filter(|other| other.name != sample.name) {
            assert!(!(sample.decodes)(&other.bytes), "{} read as {}", other.name, sample.name);
        }
    }
}

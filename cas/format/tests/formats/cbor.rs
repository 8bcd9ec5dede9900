//! Everything that means the same in CBOR and is not the one deterministic form is refused.
//!
//! The small reader and writer here know nothing of the library's.

use crate::samples::samples;

/// A data item as the formats use them: no tags, floats or simple values.
#[derive(Debug, Clone)]
enum Item {
    /// An integer of major type 0 or 1.
    Number(u8, u64),
    /// Bytes or text: major type 2 or 3.
    String(u8, Vec<u8>),
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

/// What is done to one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twist {
    /// The value or length takes more bytes than it needs.
    LongHead,
    /// A length is left open and closed by a break.
    OpenLength,
    /// A tag before the item: 55799 means "CBOR" and nothing else.
    Tag,
    /// The first two entries of a map change places.
    Swap,
    /// The last entry of a map stands twice.
    Repeat,
    /// A map or array has an entry more than there are fields.
    MoreFields,
    /// A map has an empty field that should be left out.
    Null,
}

const TWISTS: [Twist; 7] =
    [Twist::LongHead, Twist::OpenLength, Twist::Tag, Twist::Swap, Twist::Repeat, Twist::MoreFields, Twist::Null];

fn read(input: &mut &[u8]) -> Item {
    let (major, value) = read_head(input);
    match major {
        0 | 1 => Item::Number(major, value),
        2 | 3 => {
            let (bytes, rest) = input.split_at(usize::try_from(value).expect("short"));
            *input = rest;
            Item::String(major, bytes.to_vec())
        }
        4 => Item::Array((0..value).map(|_| read(input)).collect()),
        5 => Item::Map((0..value).map(|_| (read(input), read(input))).collect()),
        other => unreachable!("major type {other}"),
    }
}

fn read_head(input: &mut &[u8]) -> (u8, u64) {
    let (first, rest) = input.split_first().expect("an item");
    let width = match first & 0x1f {
        short @ 0..=23 => {
            *input = rest;
            return (first >> 5, short.into());
        }
        width @ 24..=27 => 1 << (width - 24),
        other => unreachable!("additional information {other}"),
    };
    let (value, rest) = rest.split_at(width);
    *input = rest;
    (first >> 5, value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Writes a head in its shortest form, or in the next longer one.
fn write_head(out: &mut Vec<u8>, major: u8, value: u64, long: bool) {
    let bytes = value.to_be_bytes();
    let shortest = match value {
        0..=23 => 0,
        24..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    let width = if long { if shortest == 0 { 1 } else { shortest * 2 } } else { shortest };
    match width {
        0 => out.push(major << 5 | bytes[7]),
        1 | 2 | 4 | 8 => {
            out.push(major << 5 | [0, 24, 25, 0, 26, 0, 0, 0, 27][width]);
            out.extend_from_slice(&bytes[8 - width..]);
        }
        // There is nothing longer than eight bytes: the break byte is no head at all.
        _ => out.push(0xff),
    }
}

/// Writes an item and what is in it, with a twist at the item of number `at`; says whether it took hold.
struct Writer {
    out: Vec<u8>,
    twist: Option<Twist>,
    at: usize,
    seen: usize,
    took_hold: bool,
}

impl Writer {
    fn write(&mut self, item: &Item) {
        let twist = self.twist.filter(|_| self.seen == self.at);
        self.seen += 1;
        let is = |wanted| twist == Some(wanted);
        if is(Twist::Tag) {
            self.out.extend_from_slice(&[0xd9, 0xd9, 0xf7]);
        }
        let applies = match (item, twist) {
            (_, None) => false,
            (_, Some(Twist::LongHead | Twist::Tag)) => true,
            (Item::Number(..), _) => false,
            (Item::String(..), Some(twist)) => twist == Twist::OpenLength,
            (Item::Array(_), Some(twist)) => matches!(twist, Twist::OpenLength | Twist::MoreFields),
            (Item::Map(entries), Some(Twist::Swap)) => entries.len() > 1,
            (Item::Map(entries), Some(Twist::Repeat)) => !entries.is_empty(),
            (Item::Map(_), Some(_)) => true,
        };
        self.took_hold |= applies;
        let open = applies && is(Twist::OpenLength);
        match item {
            Item::Number(major, value) => write_head(&mut self.out, *major, *value, is(Twist::LongHead)),
            Item::String(major, bytes) => {
                if open {
                    self.out.push(major << 5 | 31);
                }
                write_head(&mut self.out, *major, bytes.len() as u64, is(Twist::LongHead));
                self.out.extend_from_slice(bytes);
            }
            Item::Array(items) => {
                self.open(4, items.len() + usize::from(is(Twist::MoreFields)), is(Twist::LongHead), open);
                items.iter().for_each(|item| self.write(item));
                if is(Twist::MoreFields) {
                    self.out.push(0xf6);
                }
            }
            Item::Map(entries) => self.write_map(entries, twist),
        }
        if open {
            self.out.push(0xff);
        }
    }

    fn write_map(&mut self, entries: &[(Item, Item)], twist: Option<Twist>) {
        let is = |wanted| twist == Some(wanted);
        let mut entries = entries.to_vec();
        if is(Twist::Swap) && entries.len() > 1 {
            entries.swap(0, 1);
        }
        if is(Twist::Repeat) {
            entries.extend(entries.last().cloned());
        }
        let more = usize::from(is(Twist::MoreFields) || is(Twist::Null));
        self.open(5, entries.len() + more, is(Twist::LongHead), is(Twist::OpenLength));
        for (key, value) in &entries {
            self.write(key);
            self.write(value);
        }
        match twist {
            // Field 99 of a newer version.
            Some(Twist::MoreFields) => self.out.extend_from_slice(&[0x18, 99, 0x01]),
            // The next field as if it were there and empty.
            Some(Twist::Null) => self.out.extend_from_slice(&[u8::try_from(entries.len()).expect("few"), 0xf6]),
            _ => {}
        }
    }

    fn open(&mut self, major: u8, len: usize, long: bool, open: bool) {
        if open {
            self.out.push(major << 5 | 31);
        } else {
            write_head(&mut self.out, major, len as u64, long);
        }
    }
}

fn twisted(item: &Item, twist: Option<Twist>, at: usize) -> (Vec<u8>, usize, bool) {
    let mut writer = Writer { out: Vec::new(), twist, at, seen: 0, took_hold: false };
    writer.write(item);
    (writer.out, writer.seen, writer.took_hold)
}

#[test]
fn no_other_form_of_the_same_cbor_is_accepted() {
    for sample in samples() {
        let Some(range) = sample.cbor() else { continue };
        let mut input = &sample.bytes[range.clone()];
        let item = read(&mut input);
        assert!(input.is_empty(), "{} is one item", sample.name);
        let (plain, items, _) = twisted(&item, None, 0);
        assert_eq!(plain, sample.bytes[range], "{} is in the shortest form", sample.name);
        let mut tried = 0;
        for twist in TWISTS {
            for at in 0..items {
                let (bad, _, took_hold) = twisted(&item, Some(twist), at);
                if took_hold {
                    assert!(!(sample.decodes)(&sample.with_cbor(&bad)), "{} with {twist:?} at {at}", sample.name);
                    tried += 1;
                }
            }
        }
        assert!(tried >= items, "{}: {tried} forms of {items} items", sample.name);
    }
}

#[test]
fn keys_stand_in_the_order_of_their_encoded_bytes() {
    fn check(item: &Item) {
        match item {
            Item::Number(..) | Item::String(..) => {}
            Item::Array(items) => items.iter().for_each(check),
            Item::Map(entries) => {
                let keys: Vec<Vec<u8>> = entries.iter().map(|(key, _)| twisted(key, None, 0).0).collect();
                assert!(keys.is_sorted_by(|a, b| a < b), "{item:?}");
                entries.iter().for_each(|(_, value)| check(value));
            }
        }
    }
    for sample in samples() {
        if let Some(range) = sample.cbor() {
            check(&read(&mut &sample.bytes[range]));
        }
    }
}

#[test]
fn claimed_lengths_allocate_nothing() {
    // Each item that has a length claims 2^64 - 1 or 2^40 entries or bytes; what is there is what was there.
    for sample in samples() {
        let Some(range) = sample.cbor() else { continue };
        let cbor = &sample.bytes[range];
        for at in (0..cbor.len()).filter(|at| (0x40..0xc0).contains(&cbor[*at])) {
            let major = cbor[at] & 0xe0;
            for claim in [u64::MAX, 1 << 40] {
                let head = [&[major | 27][..], &claim.to_be_bytes()].concat();
                let bad = [&cbor[..at], &head, &cbor[at + 1..]].concat();
                assert!(!(sample.decodes)(&sample.with_cbor(&bad)), "{} at {at}", sample.name);
            }
        }
        for nested in [0x81, 0x9f, 0xa1, 0xbf, 0xc1, 0x5f] {
            assert!(!(sample.decodes)(&sample.with_cbor(&vec![nested; 100_000])), "{} of {nested:#x}", sample.name);
            // The same in a field that is skipped.
            let skipped = [&[0xa1, 0x18, 99][..], &vec![nested; 100_000]].concat();
            assert!(!(sample.decodes)(&sample.with_cbor(&skipped)), "{} of skipped {nested:#x}", sample.name);
        }
    }
}

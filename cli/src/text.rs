//! Numbers, times and names as people read them.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytesize::ByteSize;
use forebay_format::Timestamp;
use serde_json::{Value, json};

/// Bytes with a decimal unit, as networks and disks are sold: `1.7 GB`.
pub(crate) fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().si().to_string()
}

/// UTC to the second.
pub(crate) fn time(time: Timestamp) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    jiff::Timestamp::new(time.seconds, nanos)
        .map_or_else(|_| format!("{}s", time.seconds), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// RFC 3339 with nanoseconds, UTC.
pub(crate) fn time_json(time: Timestamp) -> Value {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    jiff::Timestamp::new(time.seconds, nanos).map_or(Value::Null, |time| json!(time.to_string()))
}

/// A raw name as one line of text: what cannot be shown, and the backslash, are escaped.
pub(crate) fn name(raw: &[u8]) -> String {
    let mut shown = String::with_capacity(raw.len());
    for part in raw.utf8_chunks() {
        for character in part.valid().chars() {
            match character {
                '\\' => shown.push_str("\\\\"),
                character if character.is_control() => shown.extend(character.escape_default()),
                character => shown.push(character),
            }
        }
        for byte in part.invalid() {
            write!(shown, "\\x{byte:02x}").expect("a String takes every write");
        }
    }
    shown
}

/// A message as one line: control characters, which can come from names, are escaped.
pub(crate) fn message(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Adds a raw path to a JSON object: `path`, and `path_b64` if it is not UTF-8.
pub(crate) fn add_path(object: &mut Value, raw: &[u8]) {
    add_raw(object, "path", raw);
}

/// Adds raw bytes to a JSON object under `name`, and under `name_b64` too if they are not UTF-8.
pub(crate) fn add_raw(object: &mut Value, name: &str, raw: &[u8]) {
    object[name] = json!(String::from_utf8_lossy(raw));
    if std::str::from_utf8(raw).is_err() {
        object[format!("{name}_b64")] = json!(STANDARD.encode(raw));
    }
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, one: &str) -> String {
    let many = if number == 1 { "" } else { "s" };
    format!("{number} {one}{many}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_and_can_be_told_apart() {
        assert_eq!(name("n\u{e9}.bin".as_bytes()), "n\u{e9}.bin");
        assert_eq!(name(b"caf\xe9.bin"), "caf\\xe9.bin");
        assert_eq!(name(b"two\nlines"), "two\\nlines");
        assert_eq!(name(b"back\\slash"), "back\\\\slash");
        assert_eq!(name(b"\x1b[31m"), "\\u{1b}[31m");
    }

    #[test]
    fn bytes_that_are_no_text_come_twice() {
        let mut object = json!({});
        add_path(&mut object, b"a/caf\xe9");
        add_raw(&mut object, "target", b"plain");
        assert_eq!(object, json!({ "path": "a/caf\u{fffd}", "path_b64": "YS9jYWbp", "target": "plain" }));
    }
}

//! The objects, and the XML in which S3 speaks about them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};

/// One stored object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) data: Bytes,
    pub(super) etag: String,
    pub(super) modified_s: u64,
}

/// Everything the server keeps.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) page_size: usize,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    next_upload: u64,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), page_size: 1000, uploads: BTreeMap::new(), next_upload: 0 }
    }
}

impl Bucket {
    /// Stores an object and gives its ETag.
    pub(super) fn put(&mut self, key: &str, data: Bytes) -> String {
        let etag = format!("\"{}\"", &blake3::hash(&data).to_hex()[..32]);
        let object = Object { data, etag: etag.clone(), modified_s: now_s() };
        self.objects.insert(key.to_owned(), object);
        etag
    }

    /// Begins a multipart upload.
    pub(super) fn begin_upload(&mut self, key: &str) -> String {
        self.next_upload += 1;
        let id = format!("upload-{}", self.next_upload);
        self.uploads.insert(id.clone(), BTreeMap::new());
        xml("InitiateMultipartUploadResult", &format!("{}{}", tag("Key", key), tag("UploadId", &id)))
    }

    /// Takes one part and gives its ETag; `None` when there is no such upload.
    pub(super) fn put_part(&mut self, id: &str, number: u32, data: Bytes) -> Option<String> {
        let etag = format!("\"{}\"", &blake3::hash(&data).to_hex()[..32]);
        self.uploads.get_mut(id)?.insert(number, data);
        Some(etag)
    }

    /// Joins the parts to the object.
    pub(super) fn end_upload(&mut self, key: &str, id: &str) -> Option<String> {
        let parts = self.uploads.remove(id)?;
        let mut whole = BytesMut::new();
        for part in parts.values() {
            whole.extend_from_slice(part);
        }
        let etag = self.put(key, whole.freeze());
        Some(xml("CompleteMultipartUploadResult", &format!("{}{}", tag("Key", key), tag("ETag", &etag))))
    }

    /// Forgets an upload.
    pub(super) fn abort_upload(&mut self, id: &str) {
        self.uploads.remove(id);
    }

    /// One page of `ListObjectsV2`.
    pub(super) fn list(&self, query: &BTreeMap<String, String>) -> String {
        let get = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (get("prefix"), get("delimiter"));
        let after = if get("continuation-token").is_empty() { get("start-after") } else { get("continuation-token") };
        let limit = get("max-keys").parse().unwrap_or(self.page_size).min(self.page_size);
        let mut body = String::new();
        let (mut count, mut last, mut truncated) = (0, String::new(), false);
        for (key, object) in self.objects.range(prefix.to_owned()..) {
            if !key.starts_with(prefix) {
                break;
            }
            let common = common_prefix(key, prefix, delimiter);
            let name = common.as_deref().unwrap_or(key);
            if name <= after || (count > 0 && name == last) {
                continue;
            }
            if count == limit {
                truncated = true;
                break;
            }
            count += 1;
            name.clone_into(&mut last);
            match common {
                Some(common) => body += &format!("<CommonPrefixes>{}</CommonPrefixes>", tag("Prefix", &common)),
                None => body += &contents(key, object),
            }
        }
        let mut head = tag("Prefix", prefix) + &tag("KeyCount", &count.to_string());
        head += &tag("IsTruncated", if truncated { "true" } else { "false" });
        if truncated {
            head += &tag("NextContinuationToken", &last);
        }
        xml("ListBucketResult", &(head + &body))
    }

    /// `DeleteObjects`: removes every key named in the body.
    pub(super) fn delete_many(&mut self, body: &str) -> String {
        let mut answer = String::new();
        for part in body.split("<Key>").skip(1) {
            let key = unescape(part.split("</Key>").next().unwrap_or_default());
            self.objects.remove(&key);
            answer += &format!("<Deleted>{}</Deleted>", tag("Key", &key));
        }
        xml("DeleteResult", &answer)
    }
}

/// The body of an error answer.
pub(super) fn error_xml(status: u16) -> String {
    let code = match status {
        400 => "InvalidRequest",
        403 => "AccessDenied",
        404 => "NoSuchKey",
        409 => "ConditionalRequestConflict",
        412 => "PreconditionFailed",
        416 => "InvalidRange",
        429 | 503 => "SlowDown",
        _ => "InternalError",
    };
    format!("<?xml version=\"1.0\"?><Error>{}{}</Error>", tag("Code", code), tag("Message", "by order of the test"))
}

/// `Sat, 29 Aug 2026 10:00:00 GMT`
pub(super) fn http_date(seconds: u64) -> String {
    let (year, month, day, rest) = civil(seconds);
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let weekday = days[usize::try_from(seconds / 86_400 % 7).expect("below 7")];
    let month = names[usize::try_from(month - 1).expect("below 12")];
    format!("{weekday}, {day:02} {month} {year} {} GMT", clock(rest))
}

fn contents(key: &str, object: &Object) -> String {
    let (year, month, day, rest) = civil(object.modified_s);
    let modified = format!("{year}-{month:02}-{day:02}T{}.000Z", clock(rest));
    let mut inner = tag("Key", key) + &tag("LastModified", &modified) + &tag("ETag", &object.etag);
    inner += &tag("Size", &object.data.len().to_string());
    format!("<Contents>{inner}<StorageClass>STANDARD</StorageClass></Contents>")
}

fn common_prefix(key: &str, prefix: &str, delimiter: &str) -> Option<String> {
    if delimiter.is_empty() {
        return None;
    }
    let end = key[prefix.len()..].find(delimiter)?;
    Some(key[..prefix.len() + end + delimiter.len()].to_owned())
}

fn xml(name: &str, inner: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><{name}>{inner}</{name}>")
}

fn tag(name: &str, value: &str) -> String {
    let mut out = format!("<{name}>");
    for character in value.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    write!(out, "</{name}>").expect("a string can be written to");
    out
}

fn unescape(value: &str) -> String {
    value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn clock(rest: u64) -> String {
    format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month, day and second of the day. Source: H. Hinnant, `civil_from_days`.
fn civil(seconds: u64) -> (u64, u64, u64, u64) {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day, seconds % 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_788_004_800), "Sat, 29 Aug 2026 12:00:00 GMT");
    }

    #[test]
    fn a_list_in_pages_names_every_key_once() {
        let mut bucket = Bucket { page_size: 2, ..Bucket::default() };
        for key in ["a/1", "a/b/2", "a/b/3", "a/c/4", "a/z&<", "b"] {
            bucket.put(key, Bytes::from_static(b"x"));
        }
        let mut query = BTreeMap::from([("prefix".to_owned(), "a/".to_owned())]);
        let page = bucket.list(&query);
        assert!(page.contains("<Key>a/1</Key>") && page.contains("<Key>a/b/2</Key>") && !page.contains("a/b/3<"));
        assert!(page.contains("<NextContinuationToken>a/b/2</NextContinuationToken>"), "{page}");
        query.insert("delimiter".to_owned(), "/".to_owned());
        query.insert("continuation-token".to_owned(), "a/b/".to_owned());
        let page = bucket.list(&query);
        assert!(page.contains("<Prefix>a/c/</Prefix>") && page.contains("<Key>a/z&amp;&lt;</Key>"), "{page}");
        assert!(page.contains("<IsTruncated>false</IsTruncated>"), "{page}");
    }
}

//! From a request to an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use bytes::Bytes;

use super::body::{self, End};
use super::bucket::{self, Object};
use super::rules::Plan;
use super::{BUCKET, LoggedRequest, Shared};

type Answer = Response<Body>;

/// The whole service.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

/// One request, taken apart.
struct Asked {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
    plan: Plan,
    place: usize,
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let path = decode(parts.uri.path());
    let key = path.strip_prefix(&format!("/{BUCKET}")).unwrap_or_default().trim_start_matches('/').to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let method = parts.method.as_str().to_owned();
    let create_only = parts.headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*");
    let plan = shared.rules.lock().plan(&method, &key);
    let place = shared.log_request(LoggedRequest {
        method: method.clone(),
        key: key.clone(),
        query: query.to_owned(),
        range: text_of(&parts.headers, header::RANGE),
        create_only,
        status: 0,
        body_bytes: 0,
    });
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    let asked = Asked { method, key, query: pairs(query), headers: parts.headers, plan, place };
    let answer = match asked.plan.status {
        Some(status) => {
            // The body is read, else the client may see a broken pipe in place of the status.
            body::receive(&shared, place, body).await;
            error(status)
        }
        None if asked.method == "GET" => get(&shared, &asked),
        None => change(&shared, &asked, body).await,
    };
    shared.log_status(place, answer.status().as_u16());
    answer
}

fn get(shared: &Arc<Shared>, asked: &Asked) -> Answer {
    if asked.key.is_empty() {
        let page = shared.bucket.lock().list(&asked.query);
        return xml(page);
    }
    let Some(mut object) = shared.bucket.lock().objects.get(&asked.key).cloned() else { return error(404) };
    if text_of(&asked.headers, header::IF_MATCH).is_some_and(|etag| etag != object.etag) {
        return error(412);
    }
    if let Some(body) = &asked.plan.body {
        object.data = Bytes::from(body.clone());
    }
    let total = object.data.len();
    let range = text_of(&asked.headers, header::RANGE).filter(|_| !asked.plan.ignore_range);
    let mut answer = Response::builder();
    let mut data = object.data.clone();
    if let Some(range) = range {
        let Some((start, end)) = range_of(&range, total) else { return error(416) };
        data = data.slice(start..end);
        answer = answer
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{total}", end - 1));
    }
    answer = answer.header(header::CONTENT_LENGTH, data.len());
    let (cut, silence) = (asked.plan.cut_after, asked.plan.silence_after);
    let end = if silence.is_some() { End::Silence } else { End::Cut };
    let (data, end) = match silence.or(cut).map(|after| usize::try_from(after).unwrap_or(usize::MAX)) {
        Some(after) if after < data.len() => (data.slice(..after), end),
        _ => (data, End::Whole),
    };
    let stream = body::answer(Arc::clone(shared), asked.place, data, end);
    finish(with_object(answer, &object), stream)
}

async fn change(shared: &Arc<Shared>, asked: &Asked, body: Body) -> Answer {
    let Some(body) = body::receive(shared, asked.place, body).await else { return error(400) };
    let upload = asked.query.get("uploadId").map(String::as_str);
    let answer = match (asked.method.as_str(), upload) {
        ("HEAD", _) => head(shared, asked),
        ("PUT", Some(id)) => put_part(shared, asked, id, body),
        ("PUT", None) if asked.headers.contains_key("x-amz-copy-source") => error(501),
        ("PUT", None) => put(shared, asked, body),
        ("POST", None) if asked.query.contains_key("uploads") => xml(shared.bucket.lock().begin_upload(&asked.key)),
        ("POST", None) if asked.query.contains_key("delete") => {
            xml(shared.bucket.lock().delete_many(&String::from_utf8_lossy(&body)))
        }
        ("POST", Some(id)) => end_upload(shared, asked, id),
        ("DELETE", Some(id)) => {
            shared.bucket.lock().abort_upload(id);
            empty(204)
        }
        ("DELETE", None) => {
            shared.bucket.lock().objects.remove(&asked.key);
            empty(204)
        }
        _ => error(400),
    };
    match asked.plan.status_after_commit {
        Some(status) if answer.status().is_success() => error(status),
        _ => answer,
    }
}

fn head(shared: &Shared, asked: &Asked) -> Answer {
    let Some(object) = shared.bucket.lock().objects.get(&asked.key).cloned() else { return empty(404) };
    let answer = Response::builder().header(header::CONTENT_LENGTH, object.data.len());
    finish(with_object(answer, &object), Body::empty())
}

/// The condition and the write stand under one lock: of two creates, one wins.
fn put(shared: &Shared, asked: &Asked, data: Bytes) -> Answer {
    let mut bucket = shared.bucket.lock();
    if let Some(status) = failed_condition(asked, bucket.objects.get(&asked.key)) {
        return error(status);
    }
    let etag = bucket.put(&asked.key, data);
    finish(Response::builder().header(header::ETAG, etag), Body::empty())
}

fn put_part(shared: &Shared, asked: &Asked, id: &str, data: Bytes) -> Answer {
    let number = asked.query.get("partNumber").and_then(|number| number.parse().ok());
    let Some(number) = number else { return error(400) };
    let etag = shared.bucket.lock().put_part(id, number, data);
    etag.map_or_else(|| error(404), |etag| finish(Response::builder().header(header::ETAG, etag), Body::empty()))
}

fn end_upload(shared: &Shared, asked: &Asked, id: &str) -> Answer {
    let mut bucket = shared.bucket.lock();
    if let Some(status) = failed_condition(asked, bucket.objects.get(&asked.key)) {
        return error(status);
    }
    bucket.end_upload(&asked.key, id).map_or_else(|| error(404), xml)
}

fn failed_condition(asked: &Asked, there: Option<&Object>) -> Option<u16> {
    if asked.plan.ignore_conditions {
        return None;
    }
    if let Some(unwanted) = text_of(&asked.headers, header::IF_NONE_MATCH) {
        return there.is_some_and(|object| unwanted == "*" || unwanted == object.etag).then_some(412);
    }
    let wanted = text_of(&asked.headers, header::IF_MATCH)?;
    match there {
        None => Some(404),
        Some(object) => (wanted != "*" && wanted != object.etag).then_some(412),
    }
}

fn with_object(answer: axum::http::response::Builder, object: &Object) -> axum::http::response::Builder {
    answer
        .header(header::ETAG, &object.etag)
        .header(header::LAST_MODIFIED, bucket::http_date(object.modified_s))
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, "application/octet-stream")
}

fn xml(body: String) -> Answer {
    finish(Response::builder().header(header::CONTENT_TYPE, "application/xml"), Body::from(body))
}

fn error(status: u16) -> Answer {
    let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "application/xml");
    finish(answer, Body::from(bucket::error_xml(status)))
}

fn empty(status: u16) -> Answer {
    finish(Response::builder().status(status), Body::empty())
}

fn finish(answer: axum::http::response::Builder, body: Body) -> Answer {
    answer.body(body).expect("the headers of an answer are valid")
}

fn text_of(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// `bytes=a-b`, `bytes=a-` and `bytes=-n` as a half-open range.
fn range_of(value: &str, total: usize) -> Option<(usize, usize)> {
    let (start, end) = value.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (start.parse::<usize>().ok(), end.parse::<usize>().ok()) {
        (Some(start), Some(last)) => (start, last.saturating_add(1).min(total)),
        (Some(start), None) => (start, total),
        (None, Some(len)) => (total.saturating_sub(len), total),
        (None, None) => return None,
    };
    (start < end).then_some((start, end))
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(k, v)| (decode(k), decode(v))).collect()
}

fn decode(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2).and_then(|digits| hex::decode(digits).ok())).flatten();
        match escaped {
            Some(byte) => {
                bytes.extend(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        assert_eq!(range_of("bytes=0-0", 10), Some((0, 1)));
        assert_eq!(range_of("bytes=3-", 10), Some((3, 10)));
        assert_eq!(range_of("bytes=-4", 10), Some((6, 10)));
        assert_eq!(range_of("bytes=2-99", 10), Some((2, 10)));
        assert_eq!(range_of("bytes=10-", 10), None);
        assert_eq!(range_of("bytes=-", 10), None);
    }

    #[test]
    fn escaped_keys_are_decoded_once() {
        assert_eq!(decode("/bucket/a%20b%2520/%E2%82%AC"), "/bucket/a b%20/€");
        assert_eq!(
            pairs("list-type=2&prefix=a%2F&x"),
            [("list-type", "2"), ("prefix", "a/"), ("x", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        );
    }
}

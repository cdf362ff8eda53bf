//! One door per parser of bytes that come from the network or from an image. Each takes any bytes and panics only when an
//! invariant is broken.

use std::time::{Duration, SystemTime};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::Uri;

use crate::http::Query;

/// Frames of a Connect stream, cut as the first byte says.
pub fn frames(input: &[u8]) {
    crate::connect::fuzz_frames(input);
}

/// The JSON messages of all calls.
pub fn messages(input: &[u8]) {
    crate::process::fuzz_messages(input);
    crate::filesystem::fuzz_messages(input);
    crate::api::fuzz_init(input);
}

/// A multipart form, its boundary and the heads of its parts.
pub fn form(input: &[u8]) {
    crate::files::fuzz_form(input);
}

/// The headers that choose bytes, encodings, times, users and limits: one `name: value` per line.
pub fn headers(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    crate::connect::fuzz_headers(&headers);
    crate::files::fuzz_headers(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000));
}

/// A request target, and the claim to a file that is in it.
pub fn query(input: &[u8]) {
    if let Ok(uri) = Uri::try_from(input) {
        crate::files::fuzz_claim(&Query::of(&uri));
    }
}

/// Account files, of which an image has its own.
pub fn accounts(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0).map(String::from_utf8_lossy);
    let mut next = || parts.next().unwrap_or_default();
    crate::users::fuzz_find(&next(), &next(), &next());
}

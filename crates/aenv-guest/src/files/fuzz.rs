//! The doors of this module's parsers for the fuzz targets.

use std::time::SystemTime;

use hyper::header::{HeaderMap, HeaderName, ACCEPT_ENCODING, CONTENT_ENCODING};

use super::access::{self, Claim};
use super::conditions::{self, Selection};
use super::signature::Operation;
use super::{encoding, metadata};
use crate::http::Query;

/// Whatever the headers say, a selected part lies inside the file.
pub(crate) fn fuzz_headers(headers: &HeaderMap, modified: SystemTime) {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let _ = encoding::negotiate(text(ACCEPT_ENCODING), true);
    let _ = encoding::negotiate(text(ACCEPT_ENCODING), false);
    let _ = encoding::of_upload(text(CONTENT_ENCODING));
    let _ = metadata::of_headers(headers);
    let _ = conditions::judge(headers, modified);
    for size in [0, 1, 100, u64::MAX] {
        if let Selection::Part { start, length } = conditions::select(headers, modified, size) {
            assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
        }
    }
}

/// Nothing but the right token or signature opens a file.
pub(crate) fn fuzz_claim(query: &Query) {
    let claim = Claim { token: None, query, operation: Operation::Read };
    let outcome = access::check(&claim, Some("a secret that no input contains"), 1_790_000_000);
    assert!(outcome.is_err());
}

//! One door per parser of bytes that come from remotes, from files of the operator or from a disk. Each takes any bytes
//! and panics only when an invariant is broken.

use crate::cache::Index;
use crate::http::{parse_content_range, Place};
use crate::object::Credentials;
use crate::registry::{find_login, parse_token, Challenge};
use crate::trace::Trace;

/// What a registry writes into its headers: challenges, ranges, addresses.
pub fn headers(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = Challenge::parse(text);
    if let Some((first, last, total)) = parse_content_range(text) {
        assert!(first <= last && total.is_none_or(|total| last < total));
    }
    let base = Place::configured("https://host/v2/name/blobs/x").expect("a plain address");
    if let Ok(place) = base.offered(text) {
        assert_eq!(place.uri().scheme_str(), Some("https"), "an encrypted source leads to encrypted places");
        assert!(!place.authority().contains('@'));
    }
}

/// The answer of a token service.
pub fn token(input: &[u8]) {
    parse_token(input);
}

/// Credential files. Up to a zero byte it is the name of a repository.
pub fn credentials(input: &[u8]) {
    let _ = Credentials::parse(input);
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let repository = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let _ = find_login(parts.next().unwrap_or_default(), "host:5000", &repository);
}

/// The index of a cached blob. What is understood is written again the same.
pub fn index(input: &[u8]) {
    if let Some(index) = Index::parse(input) {
        assert_eq!(index.encode(), input);
    }
}

/// A trace. What is understood reads back the same when written.
pub fn trace(input: &[u8]) {
    if let Ok(trace) = Trace::parse(input) {
        assert_eq!(Trace::parse(&trace.encode()), Ok(trace));
    }
}

//! Conditional and range requests (RFC 9110, 13 and 14) for a file whose only validator is its modification time. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderName};
use hyper::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};

/// Which bytes of the file to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All of them.
    Whole,
    /// `length` bytes from `start`.
    Part {
        /// First byte.
        start: u64,
        /// How many; at least one.
        length: u64,
    },
    /// No byte of the file is in the range.
    Unsatisfiable,
}

/// What the conditions of a request ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send the file.
    Proceed,
    /// The client's copy is good.
    NotModified,
    /// The file is not the one the client means.
    PreconditionFailed,
}

/// HTTP dates have whole seconds, and so has every comparison with one.
pub(crate) fn whole_seconds(time: SystemTime) -> SystemTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Err(_) => UNIX_EPOCH,
    }
}

/// Judges the preconditions in the order of the RFC. Without entity tags, only `*` can match.
pub(crate) fn judge(headers: &HeaderMap, modified: SystemTime) -> Verdict {
    let modified = whole_seconds(modified);
    let precondition_holds = match text(headers, &IF_MATCH) {
        Some(tags) => tags == "*",
        None => date(headers, &IF_UNMODIFIED_SINCE).is_none_or(|limit| modified <= limit),
    };
    if !precondition_holds {
        return Verdict::PreconditionFailed;
    }
    let is_known = match text(headers, &IF_NONE_MATCH) {
        Some(tags) => tags == "*",
        None => date(headers, &IF_MODIFIED_SINCE).is_some_and(|since| modified <= since),
    };
    if is_known {
        Verdict::NotModified
    } else {
        Verdict::Proceed
    }
}

/// Chooses the bytes to send.
///
/// A header that is no single byte range is ignored, as the RFC allows: the whole file answers every wish.
pub(crate) fn select(headers: &HeaderMap, modified: SystemTime, size: u64) -> Selection {
    let is_current = match text(headers, &IF_RANGE) {
        Some(_) => date(headers, &IF_RANGE) == Some(whole_seconds(modified)),
        None => true,
    };
    let range = text(headers, &RANGE).filter(|_| is_current).and_then(parse_range);
    range.map_or(Selection::Whole, |range| range.of(size))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// From the first to the last byte, both inclusive; open at the end when there is no last.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Suffix(u64),
}

impl Range {
    fn of(self, size: u64) -> Selection {
        let (start, end) = match self {
            Self::From(first, last) => (first, last.map_or(size, |last| last.saturating_add(1).min(size))),
            Self::Suffix(length) => (size.saturating_sub(length), size),
        };
        match end.checked_sub(start) {
            Some(length) if length > 0 => Selection::Part { start, length },
            _ => Selection::Unsatisfiable,
        }
    }
}

fn parse_range(header: &str) -> Option<Range> {
    let (unit, set) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    match (number(first), number(last)) {
        (None, Some(length)) if first.is_empty() => Some(Range::Suffix(length)),
        (Some(first), None) if last.is_empty() => Some(Range::From(first, None)),
        (Some(first), Some(last)) if first <= last => Some(Range::From(first, Some(last))),
        _ => None,
    }
}

fn number(text: &str) -> Option<u64> {
    // A sign would be accepted by the parser, but not by the RFC.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 100;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 500)
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("valid")))
            .collect()
    }

    fn dated(name: HeaderName, seconds: u64) -> HeaderMap {
        headers(&[(name, &httpdate::fmt_http_date(at(seconds)))])
    }

    fn range(value: &str) -> Selection {
        select(&headers(&[(RANGE, value)]), at(0), SIZE)
    }

    #[test]
    fn ranges_select_bytes() {
        assert_eq!(range("bytes=0-0"), Selection::Part { start: 0, length: 1 });
        assert_eq!(range("bytes=10-"), Selection::Part { start: 10, length: 90 });
        assert_eq!(range("bytes=-30"), Selection::Part { start: 70, length: 30 });
        assert_eq!(range("bytes=-300"), Selection::Part { start: 0, length: 100 });
        assert_eq!(range("bytes=90-18446744073709551615"), Selection::Part { start: 90, length: 10 });
    }

    #[test]
    fn ranges_outside_cannot_be_satisfied() {
        for outside in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(range(outside), Selection::Unsatisfiable, "{outside}");
        }
        assert_eq!(select(&headers(&[(RANGE, "bytes=-5")]), at(0), 0), Selection::Unsatisfiable);
    }

    #[test]
    fn senseless_ranges_are_ignored() {
        for senseless in
            ["bytes=5-2", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,4-5", "bytes=+1-2", "x"]
        {
            assert_eq!(range(senseless), Selection::Whole, "{senseless}");
        }
    }

    #[test]
    fn if_range_needs_the_exact_date() {
        for (seconds, expected) in [(7, Selection::Part { start: 0, length: 1 }), (8, Selection::Whole)] {
            let mut headers = dated(IF_RANGE, seconds);
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
            assert_eq!(select(&headers, at(7), SIZE), expected);
        }
        let tagged = headers(&[(IF_RANGE, "\"tag\""), (RANGE, "bytes=0-0")]);
        assert_eq!(select(&tagged, at(7), SIZE), Selection::Whole);
    }

    #[test]
    fn dates_decide_without_tags() {
        assert_eq!(judge(&HeaderMap::new(), at(7)), Verdict::Proceed);
        assert_eq!(judge(&dated(IF_MODIFIED_SINCE, 7), at(7)), Verdict::NotModified);
        assert_eq!(judge(&dated(IF_MODIFIED_SINCE, 6), at(7)), Verdict::Proceed);
        assert_eq!(judge(&dated(IF_UNMODIFIED_SINCE, 6), at(7)), Verdict::PreconditionFailed);
        assert_eq!(judge(&dated(IF_UNMODIFIED_SINCE, 7), at(7)), Verdict::Proceed);
    }

    #[test]
    fn only_the_star_matches_a_tag() {
        assert_eq!(judge(&headers(&[(IF_NONE_MATCH, "*")]), at(7)), Verdict::NotModified);
        assert_eq!(judge(&headers(&[(IF_MATCH, "\"x\"")]), at(7)), Verdict::PreconditionFailed);
        assert_eq!(judge(&headers(&[(IF_MATCH, "*")]), at(7)), Verdict::Proceed);
        let mut both = dated(IF_MODIFIED_SINCE, 7);
        both.insert(IF_NONE_MATCH, HeaderValue::from_static("\"x\""));
        assert_eq!(judge(&both, at(7)), Verdict::Proceed, "a tag condition makes the date one void");
    }

    proptest! {
        #[test]
        fn a_part_is_inside_the_file(value in "(bytes=)?[-0-9,=]{0,24}", size in 0_u64..200) {
            let headers = headers(&[(RANGE, &value)]);
            if let Selection::Part { start, length } = select(&headers, at(0), size) {
                prop_assert!(length > 0 && start + length <= size);
            }
        }
    }
}

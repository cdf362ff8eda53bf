//! Takes a range out of an answer, and believes nothing that does not fit the question.

use std::io::{self, Read};

use super::{Body, Failure, HeaderMap, Place, Response};
use crate::error::{Misbehaviour, SourceError};

/// The bytes that were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The first byte.
    pub(crate) offset: u64,
    /// How many; never none.
    pub(crate) length: u64,
    /// The size of the whole blob.
    pub(crate) total: u64,
    /// How much is read and dropped when the remote ignores ranges.
    pub(crate) skip_limit: u64,
}

impl Wanted {
    fn last(self) -> u64 {
        self.offset + self.length - 1
    }

    /// The value of the `Range` header.
    pub(crate) fn header(self) -> String {
        format!("bytes={}-{}", self.offset, self.last())
    }
}

/// Fills the buffer from an answer with status 200 or 206.
pub(crate) fn receive(
    place: &Place,
    mut response: Response<Body>,
    wanted: Wanted,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let is_partial = response.status() == 206;
    let checked = if is_partial {
        check_partial(response.headers(), wanted)
    } else {
        check_whole(response.headers(), wanted)
    };
    checked.map_err(|fault| fault.at(place))?;
    let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
    if !is_partial {
        skip(&mut reader, wanted.offset)?;
    }
    reader.read_exact(buffer).map_err(interrupted)?;
    // Reading to the end gives the connection back to the pool.
    if is_partial && reader.read(&mut [0]).map_err(interrupted)? > 0 {
        return Err(Fault(Misbehaviour::LongBody).at(place));
    }
    Ok(())
}

struct Fault(Misbehaviour);

impl Fault {
    fn at(self, place: &Place) -> Failure {
        let is_final = matches!(self.0, Misbehaviour::Size { .. } | Misbehaviour::RangeIgnored);
        let error = place.misbehaved(self.0);
        if is_final {
            Failure::Final(error)
        } else {
            Failure::Fault(error)
        }
    }
}

fn check_partial(headers: &HeaderMap, wanted: Wanted) -> Result<(), Fault> {
    check_encoding(headers)?;
    let range = text(headers, "content-range").and_then(parse_content_range);
    let (first, last, total) = range.ok_or(Fault(Misbehaviour::Range))?;
    check_size(wanted, total)?;
    let length = content_length(headers)?;
    if (first, last) != (wanted.offset, wanted.last()) || length.is_some_and(|length| length != wanted.length)
    {
        return Err(Fault(Misbehaviour::Range));
    }
    Ok(())
}

fn check_whole(headers: &HeaderMap, wanted: Wanted) -> Result<(), Fault> {
    check_encoding(headers)?;
    check_size(wanted, content_length(headers)?)?;
    if wanted.offset > wanted.skip_limit {
        return Err(Fault(Misbehaviour::RangeIgnored));
    }
    Ok(())
}

fn check_size(wanted: Wanted, found: Option<u64>) -> Result<(), Fault> {
    match found {
        Some(found) if found != wanted.total => {
            Err(Fault(Misbehaviour::Size { expected: wanted.total, found }))
        }
        _ => Ok(()),
    }
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    match text(headers, "content-encoding") {
        None | Some("" | "identity") => Ok(()),
        Some(_) => Err(Fault(Misbehaviour::Encoded)),
    }
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let Some(text) = text(headers, "content-length") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Fault(Misbehaviour::Range))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?").trim())
}

/// Reads `bytes first-last/total`; an unknown total is none.
pub(crate) fn parse_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (unit, rest) = text.trim().split_once(' ')?;
    let (range, total) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let total = match total {
        "*" => None,
        digits => Some(number(digits)?),
    };
    let fits = first <= last && total.is_none_or(|total| last < total);
    (unit.eq_ignore_ascii_case("bytes") && fits).then_some((first, last, total))
}

/// Digits only: `parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn skip(reader: &mut impl Read, count: u64) -> Result<(), Failure> {
    let skipped = io::copy(&mut reader.take(count), &mut io::sink()).map_err(interrupted)?;
    if skipped < count {
        return Err(interrupted(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

fn interrupted(error: io::Error) -> Failure {
    Failure::passing(format!("the body ended early: {error}"))
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::Final(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_strictly() {
        assert_eq!(parse_content_range("bytes 0-9/10"), Some((0, 9, Some(10))));
        assert_eq!(parse_content_range("Bytes 5-9/*"), Some((5, 9, None)));
        for text in [
            "",
            "bytes",
            "bytes */10",
            "bytes 0-9",
            "bytes 9-0/10",
            "bytes 0-10/10",
            "bytes +0-9/10",
            "bytes 0-9/-1",
            "items 0-9/10",
            "bytes 0-99999999999999999999/*",
            "bytes -/10",
            "0-9/10",
        ] {
            assert_eq!(parse_content_range(text), None, "{text}");
        }
    }

    #[test]
    fn the_header_names_both_ends() {
        assert_eq!(Wanted { offset: 5, length: 3, total: 9, skip_limit: 0 }.header(), "bytes=5-7");
    }
}

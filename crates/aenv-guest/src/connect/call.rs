//! One call: checks its content type, reads its message, its limits and its user, and writes the unary answer.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde::Serialize;

use super::{json, Code, ConnectError, EnvelopeReader};
use crate::http::{self, Request, Response};
use crate::state::Daemon;
use crate::users::User;

const UNARY_TYPE: &str = "application/json";
pub(super) const STREAM_TYPE: &str = "application/connect+json";

const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(90);
/// The protocol allows ten digits.
const TIMEOUT_DIGITS_MAX: usize = 10;

/// Reads the message of a unary call.
pub(crate) async fn read_unary<T: DeserializeOwned>(request: Request) -> Result<T, ConnectError> {
    check_headers(request.headers(), UNARY_TYPE)?;
    let bytes = http::read_body(request.into_body(), http::JSON_BYTES_MAX).await?;
    // An absent body is an empty message.
    parse(if bytes.is_empty() { b"{}" } else { &bytes })
}

/// Reads the only message of a server stream's request.
pub(crate) async fn read_single<T: DeserializeOwned>(request: Request) -> Result<T, ConnectError> {
    let mut reader = read_stream(request)?;
    let message = reader.next().await;
    reader.finish();
    match message? {
        Some(payload) => parse(&payload),
        None => Err(ConnectError::invalid_argument("request stream has no message")),
    }
}

/// Opens the messages of a client stream.
pub(crate) fn read_stream(request: Request) -> Result<EnvelopeReader<Incoming>, ConnectError> {
    check_headers(request.headers(), STREAM_TYPE)?;
    Ok(EnvelopeReader::new(request.into_body()))
}

/// Parses one JSON message.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConnectError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ConnectError::invalid_argument(format!("request is not a valid message: {error}")))
}

/// The answer of a unary call.
pub(crate) fn unary_response(outcome: Result<impl Serialize, ConnectError>) -> Response {
    match outcome {
        Ok(message) => http::json(StatusCode::OK, &message),
        Err(error) => http::json(error.code.status(), &error.to_json()),
    }
}

/// `Connect-Timeout-Ms`: absent or 0 is no limit.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, ConnectError> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let milliseconds = parse_digits(value, TIMEOUT_DIGITS_MAX).ok_or_else(|| {
        ConnectError::invalid_argument("connect-timeout-ms must be a number of at most 10 digits")
    })?;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

/// How long a stream may be silent before a keepalive is due. A senseless wish gets the default.
pub(crate) fn keepalive_interval(headers: &HeaderMap) -> Duration {
    headers
        .get("keepalive-ping-interval")
        .and_then(|value| parse_digits(value, 6))
        .filter(|seconds| *seconds > 0)
        .map_or(KEEPALIVE_DEFAULT, Duration::from_secs)
}

fn parse_digits(value: &HeaderValue, digits_max: usize) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    let is_number =
        !text.is_empty() && text.len() <= digits_max && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The user a call acts as: the name in Basic authorization, or the default one.
pub(crate) fn authorised_user(daemon: &Daemon, headers: &HeaderMap) -> Result<User, ConnectError> {
    let name = match headers.get(AUTHORIZATION) {
        None => None,
        Some(value) => Some(basic_name(value).ok_or_else(|| {
            ConnectError::new(Code::Unauthenticated, "authorization must be Basic base64(\"user:\")")
        })?),
    };
    Ok(daemon.user(name.as_deref())?)
}

fn basic_name(value: &HeaderValue) -> Option<String> {
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(json::decode_base64(credentials.trim()).ok()?).ok()?;
    let (name, _password) = decoded.split_once(':')?;
    Some(name.to_owned())
}

/// Whether the request is in a form that any call could have.
pub(crate) fn is_known_type(headers: &HeaderMap) -> bool {
    let given = content_type(headers);
    [UNARY_TYPE, STREAM_TYPE].iter().any(|known| given.eq_ignore_ascii_case(known))
}

/// The content type without its parameters.
fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn check_headers(headers: &HeaderMap, expected_type: &str) -> Result<(), ConnectError> {
    let essence = content_type(headers);
    if !essence.eq_ignore_ascii_case(expected_type) {
        let message = format!("content type {essence:?} is not supported here; use {expected_type}");
        return Err(ConnectError::invalid_argument(message));
    }
    for name in [CONTENT_ENCODING.as_str(), "connect-content-encoding"] {
        let encoding = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("identity");
        if !encoding.trim().eq_ignore_ascii_case("identity") {
            return Err(ConnectError::new(
                Code::Unimplemented,
                format!("{name} {encoding:?} is not supported"),
            ));
        }
    }
    Ok(())
}

/// No header makes these panic.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_headers(headers: &HeaderMap) {
    let _ = timeout(headers);
    assert!(!keepalive_interval(headers).is_zero());
    let _ = is_known_type(headers);
    let _ = check_headers(headers, STREAM_TYPE);
    let _ = headers.get(AUTHORIZATION).and_then(basic_name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a valid value"));
        headers
    }

    #[test]
    fn timeout_is_digits_only() {
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        assert_eq!(timeout(&headers("connect-timeout-ms", "0")), Ok(None));
        assert_eq!(timeout(&headers("connect-timeout-ms", "1500")), Ok(Some(Duration::from_millis(1500))));
        for bad in ["-1", "+1", "1.5", "", "x", "12345678901"] {
            assert_eq!(
                timeout(&headers("connect-timeout-ms", bad)).expect_err(bad).code,
                Code::InvalidArgument
            );
        }
    }

    #[test]
    fn keepalive_falls_back_to_its_default() {
        assert_eq!(keepalive_interval(&headers("keepalive-ping-interval", "50")), Duration::from_secs(50));
        for bad in ["0", "-3", "soon", "99999999"] {
            assert_eq!(keepalive_interval(&headers("keepalive-ping-interval", bad)), KEEPALIVE_DEFAULT);
        }
    }

    #[test]
    fn basic_authorization_carries_the_name() {
        assert_eq!(basic_name(&HeaderValue::from_static("Basic cm9vdDo=")), Some("root".into()));
        assert_eq!(basic_name(&HeaderValue::from_static("basic cm9vdDo")), Some("root".into()));
        for bad in ["Bearer cm9vdDo=", "Basic", "Basic cm9vdA==", "Basic ???"] {
            assert_eq!(basic_name(&HeaderValue::from_static(bad)), None, "{bad}");
        }
    }
}

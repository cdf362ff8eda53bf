//! Plain HTTP: body and response types, JSON errors, bounded reading. Knows no route and no protocol above HTTP.

mod crowd;
pub(crate) mod query;
pub(crate) mod server;

use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::StatusCode;
use serde::Serialize;

pub(crate) use query::Query;

/// Every answer's body: bytes or a stream, failing only as I/O does.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
/// A request as it came from the wire.
pub(crate) type Request = hyper::Request<Incoming>;
/// An answer on its way out.
pub(crate) type Response = hyper::Response<Body>;

/// Largest JSON document accepted in one request.
pub(crate) const JSON_BYTES_MAX: usize = 1 << 20;

/// A body without bytes.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is already in memory.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer without a body.
pub(crate) fn status(status: StatusCode) -> Response {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Our answers are plain structs and maps with string keys: they cannot fail to serialise.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The error answer of the REST routes: `{"code": <status>, "message": <text>}`.
pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> Response {
    #[derive(Serialize)]
    struct ErrorBody {
        code: u16,
        message: String,
    }
    json(status, &ErrorBody { code: status.as_u16(), message: message.into() })
}

/// Why a request body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// More bytes than the route accepts.
    #[error("request body is larger than {0} bytes")]
    TooLarge(usize),
    /// The client went away or broke the framing.
    #[error("request body could not be read: {0}")]
    Broken(String),
}

impl ReadError {
    /// The status this failure answers with.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// Reads a whole request body of at most `limit` bytes.
pub(crate) async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, ReadError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReadError::TooLarge(limit)),
        Err(error) => Err(ReadError::Broken(error.to_string())),
    }
}

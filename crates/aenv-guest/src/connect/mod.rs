//! The Connect protocol with JSON, as far as the SDKs use it: unary calls and streams. Knows no service.

pub(crate) mod base64;
mod call;
mod envelope;
mod error;
pub(crate) mod json;
mod stream;

#[cfg(feature = "fuzzing")]
pub(crate) use self::{call::fuzz_headers, envelope::fuzz_frames};
pub(crate) use call::{
    authorised_user, is_known_type, keepalive_interval, parse, read_single, read_stream, read_unary, timeout,
    unary_response,
};
pub(crate) use envelope::{build as build_envelope, encode as encode_envelope, EnvelopeReader, FLAG_MESSAGE};
pub(crate) use error::{Code, ConnectError};
pub(crate) use stream::{encode_message, failed_stream, open_stream, Closed, EventSender};

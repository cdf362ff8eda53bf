//! Events of a process as encoded stream frames. Output frames are written by hand: they carry all the bytes.

use bytes::Bytes;
use serde::Serialize;

use super::exit::Ending;
use crate::connect::{base64, build_envelope, encode_envelope, encode_message, FLAG_MESSAGE};

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal, where both are one.
    Pty,
}

impl Channel {
    /// What surrounds the base64 text of a data event.
    fn wrapping(self) -> (&'static [u8], &'static [u8]) {
        let prefix: &[u8] = match self {
            Self::Stdout => b"{\"event\":{\"data\":{\"stdout\":\"",
            Self::Stderr => b"{\"event\":{\"data\":{\"stderr\":\"",
            Self::Pty => b"{\"event\":{\"data\":{\"pty\":\"",
        };
        (prefix, b"\"}}}")
    }
}

/// The first event of a stream.
pub(super) fn start(pid: u32) -> Bytes {
    encode_envelope(FLAG_MESSAGE, format!("{{\"event\":{{\"start\":{{\"pid\":{pid}}}}}}}").as_bytes())
}

/// The sign of life on a silent stream.
pub(super) fn keepalive() -> Bytes {
    encode_envelope(FLAG_MESSAGE, b"{\"event\":{\"keepalive\":{}}}")
}

/// Output bytes, encoded straight into the frame.
pub(super) fn output(channel: Channel, bytes: &[u8]) -> Bytes {
    let (prefix, suffix) = channel.wrapping();
    let encoded_bytes = base64::encoded_bytes(bytes.len());
    build_envelope(FLAG_MESSAGE, prefix.len() + encoded_bytes + suffix.len(), |payload| {
        let (head, rest) = payload.split_at_mut(prefix.len());
        let (middle, tail) = rest.split_at_mut(encoded_bytes);
        head.copy_from_slice(prefix);
        tail.copy_from_slice(suffix);
        base64::encode(bytes, middle);
    })
}

/// The last event of a process.
pub(super) fn end(ending: &Ending) -> Bytes {
    #[derive(Serialize)]
    struct Message<'a> {
        event: Event<'a>,
    }
    #[derive(Serialize)]
    struct Event<'a> {
        end: &'a Ending,
    }
    encode_message(&Message { event: Event { end: ending } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(frame: &Bytes) -> &str {
        std::str::from_utf8(&frame[5..]).expect("JSON is UTF-8")
    }

    #[test]
    fn frames_have_the_shape_of_the_contract() {
        assert_eq!(payload(&start(7)), r#"{"event":{"start":{"pid":7}}}"#);
        assert_eq!(payload(&keepalive()), r#"{"event":{"keepalive":{}}}"#);
        assert_eq!(payload(&output(Channel::Stdout, b"hi\n")), r#"{"event":{"data":{"stdout":"aGkK"}}}"#);
        assert_eq!(payload(&output(Channel::Pty, &[0xff, 0])), r#"{"event":{"data":{"pty":"/wA="}}}"#);
        let ending = r#"{"event":{"end":{"exitCode":1,"exited":true,"status":"exit status 1","error":"exit status 1"}}}"#;
        assert_eq!(payload(&end(&Ending::exited(1))), ending);
    }
}

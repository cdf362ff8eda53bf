//! Frames of Connect streams: one flag byte, a big-endian length, a payload. Reading is bounded and total.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use super::{Code, ConnectError};

/// An ordinary message.
pub(crate) const FLAG_MESSAGE: u8 = 0x00;
/// A compressed message; we never negotiate compression.
const FLAG_COMPRESSED: u8 = 0x01;
/// The last frame of a stream.
pub(crate) const FLAG_END: u8 = 0x02;

const HEAD_BYTES: usize = 5;
/// Largest payload accepted in one frame.
const PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// How much may follow the last message of a stream, and for how long: its end should.
const REST_BYTES_MAX: usize = 64 << 10;
const REST_LIMIT: Duration = Duration::from_secs(10);

/// One frame, ready for the wire.
pub(crate) fn encode(flags: u8, payload: &[u8]) -> Bytes {
    build(flags, payload.len(), |target| target.copy_from_slice(payload))
}

/// One frame whose payload is written in place.
pub(crate) fn build(flags: u8, payload_bytes: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    let length = u32::try_from(payload_bytes).expect("our frames are far below 4 GiB");
    let mut frame = vec![0; HEAD_BYTES + payload_bytes];
    frame[0] = flags;
    frame[1..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    write(&mut frame[HEAD_BYTES..]);
    frame.into()
}

/// Cuts bytes into frames, however they arrive.
#[derive(Debug, Default)]
struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` while bytes are missing. The length is judged before the payload is awaited.
    fn next(&mut self) -> Result<Option<(u8, Bytes)>, ConnectError> {
        let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let flags = head[0];
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            let message = format!("frame of {length} bytes is larger than {PAYLOAD_BYTES_MAX}");
            return Err(ConnectError::new(Code::ResourceExhausted, message));
        }
        if flags & FLAG_COMPRESSED != 0 {
            return Err(ConnectError::new(Code::Unimplemented, "compressed frames are not supported"));
        }
        if flags & !FLAG_END != 0 {
            return Err(ConnectError::invalid_argument(format!("frame has unknown flags {flags:#04x}")));
        }
        if self.buffer.len() < HEAD_BYTES + length {
            self.buffer.reserve(HEAD_BYTES + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some((flags, self.buffer.split_to(length).freeze())))
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Reads the messages of a client stream from a request body.
#[derive(Debug)]
pub(crate) struct EnvelopeReader<B> {
    body: B,
    decoder: Decoder,
}

impl<B> EnvelopeReader<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// A reader of the frames in `body`.
    pub(crate) fn new(body: B) -> Self {
        Self { body, decoder: Decoder::default() }
    }

    /// The next message; `None` at the end of the stream. Cancel-safe: no byte is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ConnectError> {
        loop {
            match self.decoder.next()? {
                Some((FLAG_MESSAGE, payload)) => return Ok(Some(payload)),
                Some(_) => return Ok(None),
                None => {}
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(&bytes);
                    }
                }
                Some(Err(error)) => {
                    return Err(ConnectError::new(Code::Canceled, format!("request stream broke: {error}")))
                }
                None if self.decoder.is_empty() => return Ok(None),
                None => return Err(ConnectError::invalid_argument("request stream ended inside a frame")),
            }
        }
    }
}

impl<B> EnvelopeReader<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Send,
{
    /// Waits in the background for the end of a stream whose messages have all been read. A body that is dropped before
    /// its end arrives makes the server close the connection, which the client may be about to use again.
    pub(crate) fn finish(self) {
        let mut body = self.body;
        if body.is_end_stream() {
            return;
        }
        tokio::spawn(tokio::time::timeout(REST_LIMIT, async move {
            let mut left = REST_BYTES_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    break;
                }
            }
        }));
    }
}

/// However a stream is cut, it gives the same frames, or fails.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_frames(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let drain = |decoder: &mut Decoder| {
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = decoder.next() {
            frames.push(frame);
        }
        frames
    };
    let mut whole = Decoder::default();
    whole.push(stream);
    let expected = drain(&mut whole);
    let mut pieces = Decoder::default();
    let mut found = Vec::new();
    for piece in stream.chunks(usize::from(*cut) + 1) {
        pieces.push(piece);
        found.extend(drain(&mut pieces));
    }
    assert_eq!(found, expected);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(decoder: &mut Decoder) -> Vec<(u8, Bytes)> {
        std::iter::from_fn(|| decoder.next().expect("frames are valid")).collect()
    }

    #[test]
    fn judges_the_head_before_the_payload_arrives() {
        for (head, code) in [
            ([0x00, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
            ([0x01, 0, 0, 0, 2], Code::Unimplemented),
            ([0x80, 0, 0, 0, 2], Code::InvalidArgument),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(&head);
            assert_eq!(decoder.next().expect_err("must be refused").code, code);
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_is_an_error() {
        let body = http_body_util::Full::new(Bytes::from_static(&[0, 0, 0, 0, 9, b'{']));
        let error = EnvelopeReader::new(body).next().await.expect_err("truncated");
        assert_eq!(error.code, Code::InvalidArgument);
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1_usize..64,
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|payload| encode(FLAG_MESSAGE, payload)).collect();
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                frames.extend(drain(&mut decoder));
            }
            prop_assert!(decoder.is_empty());
            let payloads_read: Vec<Vec<u8>> = frames.into_iter().map(|(_, payload)| payload.to_vec()).collect();
            prop_assert_eq!(payloads_read, payloads);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}

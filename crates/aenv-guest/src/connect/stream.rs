//! The answering half of a Connect stream: a bounded queue of frames that ends with exactly one end frame.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use hyper::header::{HeaderValue, CONTENT_TYPE};
use serde::Serialize;
use tokio::sync::mpsc;

use super::call::STREAM_TYPE;
use super::envelope::{encode, FLAG_END, FLAG_MESSAGE};
use super::ConnectError;
use crate::http::Response;

/// Frames that wait for a slow client. A frame is at most some 44 KiB, so a stream holds little memory.
const QUEUED_FRAMES_MAX: usize = 2;

/// The client went away; the stream needs no more frames.
#[derive(Debug, thiserror::Error)]
#[error("the client closed the stream")]
pub(crate) struct Closed;

/// Writes the messages of one stream.
#[derive(Debug)]
pub(crate) struct EventSender {
    frames: mpsc::Sender<Bytes>,
}

impl EventSender {
    /// Sends a message, waiting while the client is slow.
    pub(crate) async fn send(&self, message: &impl Serialize) -> Result<(), Closed> {
        self.send_encoded(encode_message(message)).await
    }

    /// Sends a frame that is already encoded.
    pub(crate) async fn send_encoded(&self, frame: Bytes) -> Result<(), Closed> {
        self.frames.send(frame).await.map_err(|_| Closed)
    }

    /// Resolves when the client has gone away.
    pub(crate) async fn closed(&self) {
        self.frames.closed().await;
    }

    /// Ends the stream. Without this call the client misses the end frame and takes the stream for broken.
    pub(crate) async fn finish(self, outcome: Result<(), ConnectError>) {
        let _ = self.frames.send(end_frame(outcome)).await;
    }
}

/// A message frame around a serialised value.
pub(crate) fn encode_message(message: &impl Serialize) -> Bytes {
    // Our messages are plain structs: they cannot fail to serialise.
    encode(FLAG_MESSAGE, &serde_json::to_vec(message).unwrap_or_default())
}

fn end_frame(outcome: Result<(), ConnectError>) -> Bytes {
    #[derive(Serialize)]
    struct End<E> {
        error: E,
    }
    match outcome {
        Ok(()) => encode(FLAG_END, b"{}"),
        Err(error) => {
            let end = End { error: error.to_json() };
            encode(FLAG_END, &serde_json::to_vec(&end).unwrap_or_default())
        }
    }
}

/// Opens a stream: what the sender sends becomes the body of the response. A first frame that is there from the
/// beginning leaves in the same packet as the head.
pub(crate) fn open_stream(first: Option<Bytes>) -> (EventSender, Response) {
    let (frames, receiver) = mpsc::channel(QUEUED_FRAMES_MAX);
    if let Some(first) = first {
        frames.try_send(first).expect("a new queue has room and a receiver");
    }
    (EventSender { frames }, stream_response(StreamBody { receiver }.boxed_unsync()))
}

/// A stream that fails before its first message. Its status is 200: the error is in the end frame.
pub(crate) fn failed_stream(error: ConnectError) -> Response {
    stream_response(crate::http::full(end_frame(Err(error))))
}

fn stream_response(body: crate::http::Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE));
    response
}

struct StreamBody {
    receiver: mpsc::Receiver<Bytes>,
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.receiver.poll_recv(context).map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }
}

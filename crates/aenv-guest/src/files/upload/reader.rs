//! The bridge between an asynchronous request body and a blocking consumer: a short queue of chunks.
//! A body that breaks off is never mistaken for one that ends.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Chunks that wait for the disk. The sender is as fast as the disk, and holds this much memory.
const QUEUED_CHUNKS_MAX: usize = 4;
/// A client that sends nothing for this long has gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the rest of a refused upload is read, so that the client gets to see why instead of a reset connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

enum Piece {
    Chunk(Bytes),
    Broken(io::Error),
    End,
}

/// The consumer's end.
pub(super) struct ChunkReader {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    is_ended: bool,
}

/// The body's end.
pub(super) struct ChunkSender {
    pieces: mpsc::Sender<Piece>,
}

/// A new bridge.
pub(super) fn bridge() -> (ChunkSender, ChunkReader) {
    let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS_MAX);
    (ChunkSender { pieces: sender }, ChunkReader { pieces: receiver, current: Bytes::new(), is_ended: false })
}

impl ChunkSender {
    /// Feeds a whole body to the consumer, at its pace. When the consumer gives up, the rest is read and dropped.
    pub(super) async fn feed<B>(self, mut body: B)
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            let piece = next_piece(&mut body).await;
            let is_last = !matches!(piece, Piece::Chunk(_));
            let is_taken = self.pieces.send(piece).await.is_ok();
            if is_last {
                return;
            }
            if !is_taken {
                return drain(body).await;
            }
        }
    }
}

async fn next_piece<B>(body: &mut B) -> Piece
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        match tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await {
            Err(_) => {
                return Piece::Broken(io::Error::new(io::ErrorKind::TimedOut, "the client stopped sending"))
            }
            Ok(None) => return Piece::End,
            Ok(Some(Err(error))) => {
                return Piece::Broken(io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()))
            }
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(chunk) if !chunk.is_empty() => return Piece::Chunk(chunk),
                // Trailers say nothing about files.
                _ => {}
            },
        }
    }
}

async fn drain<B: Body + Unpin>(mut body: B) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while let Ok(Some(Ok(_))) = tokio::time::timeout_at(deadline, body.frame()).await {}
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.is_ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Chunk(chunk)) => self.current = chunk,
                Some(Piece::Broken(error)) => return Err(error),
                Some(Piece::End) => self.is_ended = true,
                None => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the request was dropped"))
                }
            }
        }
        let length = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    async fn read_all(reader: ChunkReader) -> io::Result<Vec<u8>> {
        let mut reader = reader;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        read.await.expect("no panic")
    }

    #[tokio::test]
    async fn a_body_arrives_whole() {
        let (sender, reader) = bridge();
        let bytes = read_all(reader);
        let ((), bytes) = tokio::join!(sender.feed(Full::new(Bytes::from_static(b"hello"))), bytes);
        assert_eq!(bytes.expect("complete"), b"hello");
    }

    #[tokio::test]
    async fn a_dropped_sender_is_no_end() {
        let (sender, reader) = bridge();
        drop(sender);
        assert_eq!(read_all(reader).await.expect_err("cut").kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up() {
        let (sender, mut reader) = bridge();
        let first = futures_util::stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"a")))]);
        let silent = futures_util::stream::StreamExt::chain(first, futures_util::stream::pending());
        sender.feed(StreamBody::new(silent)).await;
        assert!(matches!(reader.pieces.recv().await, Some(Piece::Chunk(_))));
        let Some(Piece::Broken(error)) = reader.pieces.recv().await else { panic!("expected a broken body") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_rest_of_a_refused_body_is_dropped() {
        let (sender, reader) = bridge();
        drop(reader);
        let frames = (0..100).map(|_| Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"a"))));
        sender.feed(StreamBody::new(futures_util::stream::iter(frames))).await;
    }
}

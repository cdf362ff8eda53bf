//! Bodies of downloads: chunks that are read when the client has taken the one before, so that a transfer of any size
//! holds one chunk of memory. Whatever may wait for a disk is read by a blocking worker. Knows no headers.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::Compression;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::task::JoinHandle;

use super::blocking::{self, BlockingError, TransferSlot};

/// As much as `cat` takes at once.
const CHUNK_BYTES: u64 = 128 << 10;

/// Something that is read chunk by chunk.
pub(crate) trait Source: Send + Unpin + 'static {
    /// The next chunk; `None` at the end. Blocking.
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>>;

    /// The same, when it takes hardly longer than copying the bytes. `None` when it may, and nothing has been read.
    fn chunk_at_hand(&mut self) -> Option<Option<Bytes>> {
        None
    }
}

/// The bytes of a file as they are.
#[derive(Debug)]
pub(crate) struct Plain {
    head: Option<Bytes>,
    file: File,
    /// `None` reads to the end, for files whose size the kernel does not know.
    remaining: Option<u64>,
}

impl Plain {
    /// The whole file, whose first bytes have been read already.
    pub(crate) fn whole(head: Bytes, file: File, size: Option<u64>) -> Self {
        let remaining = size.map(|size| size.saturating_sub(head.len() as u64));
        Self { head: Some(head), file, remaining }
    }

    /// A part of the file.
    pub(crate) fn part(mut file: File, start: u64, length: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        Ok(Self { head: None, file, remaining: Some(length) })
    }

    /// The next chunk by one call of `read`, which says how many bytes it found.
    fn read_chunk(
        &mut self,
        read: impl FnOnce(&File, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Bytes>> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        let wanted = self.remaining.map_or(CHUNK_BYTES, |remaining| remaining.min(CHUNK_BYTES));
        if wanted == 0 {
            return Ok(None);
        }
        // Bounded above: the number is small.
        let mut chunk = vec![0; wanted as usize];
        let length = read(&self.file, &mut chunk)?;
        chunk.truncate(length);
        if let Some(remaining) = &mut self.remaining {
            if length == 0 {
                // The length has been promised to the client: only a broken transfer tells the truth now.
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter meanwhile",
                ));
            }
            *remaining -= length as u64;
        }
        Ok((length > 0).then(|| Bytes::from(chunk)))
    }
}

impl Source for Plain {
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        self.read_chunk(read)
    }

    /// Handing each chunk over from a worker would cost more than reading it, for files that the kernel has in memory.
    /// What fails here fails in the worker as well, and is reported there.
    fn chunk_at_hand(&mut self) -> Option<Option<Bytes>> {
        self.read_chunk(read_cached).ok()
    }
}

fn read(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Reads only what is in the page cache, from the file's own position. Fails when nothing is, and in file systems that
/// do not tell.
fn read_cached(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    const OWN_POSITION: libc::off_t = -1;
    let target = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the one vector describes the buffer, which outlives the call.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &target, 1, OWN_POSITION, libc::RWF_NOWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Another source, compressed.
#[derive(Debug)]
pub(crate) struct Packed<S> {
    plain: S,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<S: Source> Packed<S> {
    /// Compresses what `plain` yields.
    pub(crate) fn new(plain: S, packer: Packer) -> Self {
        Self { plain, encoder: Some(packer.0) }
    }
}

impl<S: Source> Source for Packed<S> {
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(mut encoder) = self.encoder.take() {
            let Some(chunk) = self.plain.next_chunk()? else {
                return encoder.finish().map(|rest| Some(Bytes::from(rest)));
            };
            encoder.write_all(&chunk)?;
            let packed = std::mem::take(encoder.get_mut());
            self.encoder = Some(encoder);
            if !packed.is_empty() {
                return Ok(Some(Bytes::from(packed)));
            }
        }
        Ok(None)
    }
}

/// A compressor that has seen nothing yet.
#[derive(Debug)]
pub(crate) struct Packer(GzEncoder<Vec<u8>>);

impl Packer {
    /// Call it on the async thread: the compressor is some 300 KiB that pass over the stack on their way to the heap,
    /// more than a worker's stack holds.
    pub(crate) fn new() -> Self {
        // Fast rather than small: the network is near.
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses what is in memory. Takes milliseconds: work for a worker.
    pub(crate) fn pack(mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(bytes)?;
        self.0.finish()
    }
}

type Reading<S> = JoinHandle<Result<(S, io::Result<Option<Bytes>>), BlockingError>>;

enum Progress<S> {
    /// The client has everything that was read.
    Idle(S),
    /// A worker reads.
    Reading(Reading<S>),
    Over,
}

struct SourceBody<S> {
    progress: Progress<S>,
    _slot: TransferSlot,
}

/// A body that yields the chunks of a source, and holds the slot until it is sent or dropped.
pub(crate) fn stream<S: Source>(source: S, slot: TransferSlot) -> crate::http::Body {
    SourceBody { progress: Progress::Idle(source), _slot: slot }.boxed_unsync()
}

fn read_next<S: Source>(mut source: S) -> Reading<S> {
    tokio::spawn(blocking::run(move || {
        let chunk = source.next_chunk();
        (source, chunk)
    }))
}

impl<S: Source> Progress<S> {
    /// The next chunk and what then remains to be done; `None` while a worker reads.
    fn advance(self, context: &mut Context<'_>) -> (Self, Option<io::Result<Option<Bytes>>>) {
        let mut reading = match self {
            Self::Over => return (Self::Over, Some(Ok(None))),
            Self::Idle(mut source) => match source.chunk_at_hand() {
                Some(chunk) => return (Self::Idle(source), Some(Ok(chunk))),
                None => read_next(source),
            },
            Self::Reading(reading) => reading,
        };
        match Pin::new(&mut reading).poll(context) {
            Poll::Pending => (Self::Reading(reading), None),
            Poll::Ready(Ok(Ok((source, chunk)))) => (Self::Idle(source), Some(chunk)),
            Poll::Ready(Ok(Err(error))) => (Self::Over, Some(Err(io::Error::other(error)))),
            Poll::Ready(Err(error)) => (Self::Over, Some(Err(io::Error::other(error)))),
        }
    }
}

impl<S: Source> Body for SourceBody<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        let (progress, chunk) = progress.advance(context);
        match chunk {
            Some(Ok(Some(chunk))) => {
                self.progress = progress;
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Some(Ok(None)) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                self.progress = progress;
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.seek(SeekFrom::Start(0)).expect("sought");
        file
    }

    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index / 7 % 251) as u8).collect()
    }

    async fn collect(source: impl Source) -> io::Result<Vec<u8>> {
        static SLOTS: Semaphore = Semaphore::const_new(8);
        let slot = blocking::transfer_slot(&SLOTS).await.expect("free");
        Ok(stream(source, slot).collect().await?.to_bytes().to_vec())
    }

    #[tokio::test]
    async fn parts_and_wholes_arrive_complete() {
        let bytes = sample(400_000);
        let part = Plain::part(file(&bytes), 1_000, 300_000).expect("sought");
        assert!(collect(part).await.expect("read") == bytes[1_000..301_000]);
        let mut rest = file(&bytes);
        rest.seek(SeekFrom::Start(10)).expect("sought");
        let whole = Plain::whole(Bytes::copy_from_slice(&bytes[..10]), rest, Some(400_000));
        assert!(collect(whole).await.expect("read") == bytes);
    }

    #[tokio::test]
    async fn unknown_sizes_end_at_the_end() {
        let bytes = sample(250_000);
        assert!(collect(Plain::whole(Bytes::new(), file(&bytes), None)).await.expect("read") == bytes);
    }

    #[tokio::test]
    async fn what_the_kernel_cannot_promise_is_left_to_a_worker() {
        let open = || Plain::whole(Bytes::new(), File::open("/proc/self/limits").expect("opened"), None);
        let mut plain = open();
        assert_eq!(plain.chunk_at_hand(), Some(Some(Bytes::new())));
        assert_eq!(plain.chunk_at_hand(), None);
        let text = collect(open()).await.expect("read");
        assert!(text.starts_with(b"Limit"));
    }

    #[tokio::test]
    async fn a_file_that_shrank_breaks_the_transfer() {
        let error =
            collect(Plain::part(file(b"short"), 0, 10).expect("sought")).await.expect_err("too short");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn packed_bytes_unpack_to_the_same() {
        let bytes = sample(500_000);
        let packed =
            collect(Packed::new(Plain::part(file(&bytes), 0, 500_000).expect("sought"), Packer::new()))
                .await
                .expect("read");
        assert!(packed.len() < bytes.len() / 2);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).expect("valid gzip");
        assert!(unpacked == bytes);
    }
}

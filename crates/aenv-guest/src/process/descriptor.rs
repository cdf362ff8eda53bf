//! Non-blocking reading and writing of pipes and terminals, without a buffer per stream.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use tokio::io::unix::AsyncFd;

/// Much is taken at once: a process that waits for room in its pipe is woken by each read, however small.
const SCRATCH_BYTES: usize = 128 << 10;
/// A read that finds so much in a pipe makes it wider: with the usual one, the process and we would put each other to
/// sleep after every second read.
const FLOOD_READ_BYTES: usize = 60 << 10;
const FLOOD_PIPE_BYTES: i32 = 256 << 10;

thread_local! {
    /// One buffer for all streams: ten thousand silent processes must not own ten thousand buffers.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Our end of a pipe or a terminal.
#[derive(Debug)]
pub(super) struct Descriptor {
    end: AsyncFd<OwnedFd>,
    is_wide: AtomicBool,
}

impl Descriptor {
    /// Takes over a descriptor and makes it non-blocking.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        // SAFETY: an owned descriptor always refers to the same open file, for as long as the registration lives.
        Ok(Self { end: unsafe { AsyncFd::register(descriptor) }?, is_wide: AtomicBool::new(false) })
    }

    /// Waits for bytes, at most [`SCRATCH_BYTES`], and hands them to `take`. `None` at the end of the stream.
    pub(super) async fn read_with<T>(&self, take: impl Fn(&[u8]) -> T) -> io::Result<Option<T>> {
        loop {
            let mut ready = self.end.readable().await?;
            let outcome = ready.try_io(|_| {
                SCRATCH.with_borrow_mut(|scratch| {
                    let count = self.read(scratch)?;
                    Ok((count > 0).then(|| take(&scratch[..count])))
                })
            });
            match outcome {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.end.get_ref().as_fd();
        let count = read(end, buffer)?;
        // Few processes need a wider pipe, so few pay for it; a failure leaves it as it is. A terminal never holds so much.
        if count >= FLOOD_READ_BYTES && !self.is_wide.swap(true, Ordering::Relaxed) {
            let _ = fcntl(end, FcntlArg::F_SETPIPE_SZ(FLOOD_PIPE_BYTES));
        }
        Ok(count)
    }

    /// Writes everything, waiting while the reader is slow.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.end.writable().await?;
            match ready.try_io(|descriptor| Ok(nix::unistd::write(descriptor, bytes)?)) {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}

/// The master of a terminal whose last user has gone reports an I/O error, which is its way to say "end".
fn read(descriptor: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    match nix::unistd::read(descriptor, buffer) {
        Err(nix::errno::Errno::EIO) => Ok(0),
        other => Ok(other?),
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.get_ref().as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.end.as_raw_fd()
    }
}

//! Non-blocking reading and writing of pipes and terminals, without a buffer per stream.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use tokio::io::unix::AsyncFd;

const SCRATCH_BYTES: usize = 32 << 10;

thread_local! {
    /// One buffer for all streams: ten thousand silent processes must not own ten thousand buffers.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Our end of a pipe or a terminal.
#[derive(Debug)]
pub(super) struct Descriptor(AsyncFd<OwnedFd>);

impl Descriptor {
    /// Takes over a descriptor and makes it non-blocking.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        // SAFETY: an owned descriptor always refers to the same open file, for as long as the registration lives.
        Ok(Self(unsafe { AsyncFd::register(descriptor) }?))
    }

    /// Waits for bytes, at most `limit`, and hands them to `take`. `None` at the end of the stream.
    pub(super) async fn read_with<T>(
        &self,
        limit: usize,
        take: impl Fn(&[u8]) -> T,
    ) -> io::Result<Option<T>> {
        loop {
            let mut ready = self.0.readable().await?;
            let outcome = ready.try_io(|descriptor| {
                SCRATCH.with_borrow_mut(|scratch| {
                    let buffer = &mut scratch[..limit.min(SCRATCH_BYTES)];
                    let count = read(descriptor.as_fd(), buffer)?;
                    Ok((count > 0).then(|| take(&buffer[..count])))
                })
            });
            match outcome {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Writes everything, waiting while the reader is slow.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
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
        self.0.get_ref().as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

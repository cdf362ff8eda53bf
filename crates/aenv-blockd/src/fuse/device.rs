//! One open descriptor of `/dev/fuse`: receives requests, sends answers and notices. It does not look into messages.
//! An answer must leave through the descriptor that its request came from.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::uio::writev;
use zerocopy::IntoBytes;

use super::abi::{AnswerHeader, BackingMap};

/// Most parts of one message.
const MAX_PARTS: usize = 3;

mod request {
    #![allow(missing_docs, reason = "the macros make functions that nobody outside sees")]
    use super::BackingMap;

    nix::ioctl_read!(clone, 229, 0, u32);
    nix::ioctl_write_ptr!(open_backing, 229, 1, BackingMap);
    nix::ioctl_write_ptr!(close_backing, 229, 2, u32);
}

/// A descriptor of `/dev/fuse` that belongs to a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    /// Takes over a descriptor.
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Opens a descriptor that belongs to no mount yet.
    pub(crate) fn open_unbound() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/fuse")?;
        Ok(Self(file.into()))
    }

    /// Opens one more descriptor of the same mount.
    pub(crate) fn open_clone(&self) -> io::Result<Self> {
        let clone = Self::open_unbound()?;
        let mut source = self.0.as_raw_fd() as u32;
        // SAFETY: both descriptors are open, and the kernel reads one u32 from a valid pointer.
        unsafe { request::clone(clone.0.as_raw_fd(), &raw mut source) }?;
        Ok(clone)
    }

    /// Waits for a request and returns its length.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        nix::unistd::read(&self.0, buffer)
    }

    /// Sends one message. The parts are sent at once, because the kernel takes a message only as a whole.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        debug_assert!(parts.len() <= MAX_PARTS, "a message has few parts");
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(size_of::<AnswerHeader>() + body).map_err(|_| Errno::EMSGSIZE)?;
        let header = AnswerHeader { length, error, unique };
        let mut slices = [IoSlice::new(&[]); MAX_PARTS + 1];
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        writev(&self.0, &slices[..=parts.len()]).map(drop)
    }
}

impl Device {
    /// Makes a file known to the kernel, which then reads it by itself for opens that name the returned number.
    pub(crate) fn register_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        let map = BackingMap { descriptor: file.as_raw_fd(), ..BackingMap::default() };
        // SAFETY: both descriptors are open, and the kernel reads one structure from a valid pointer.
        unsafe { request::open_backing(self.0.as_raw_fd(), &raw const map) }
    }

    /// Lets the kernel forget a file. Opens that use it go on.
    pub(crate) fn forget_backing(&self, backing: i32) -> Result<(), Errno> {
        let backing = backing as u32;
        // SAFETY: the descriptor is open, and the kernel reads one u32 from a valid pointer.
        unsafe { request::close_backing(self.0.as_raw_fd(), &raw const backing) }.map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

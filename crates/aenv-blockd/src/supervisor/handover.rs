//! What the supervisor gives to a server: open descriptors by number, and what was agreed on with the kernel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use serde::{Deserialize, Serialize};

use crate::fuse::Agreement;
use crate::options::Options;

/// Everything that a server begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) options: Options,
    pub(crate) agreement: Agreement,
    /// Tells one mount from the next.
    pub(crate) mount_id: [u8; 16],
    /// Descriptors of `/dev/fuse`.
    pub(crate) devices: Vec<RawFd>,
    /// The listening control socket.
    pub(crate) listener: RawFd,
    /// Keeps the state directory locked.
    pub(crate) lock: RawFd,
    /// Ends when the other side dies.
    pub(crate) line: RawFd,
}

impl Handover {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.devices.iter().copied().chain([self.listener, self.lock, self.line])
    }
}

/// Lets the next program that is started have the descriptor.
pub(crate) fn make_inheritable(descriptor: &impl AsRawFd) -> io::Result<()> {
    set_flags(descriptor.as_raw_fd(), FdFlag::empty())
}

/// Takes over a descriptor that was inherited, and does not pass it on.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    set_flags(number, FdFlag::FD_CLOEXEC)?;
    // SAFETY: the call above proved that the descriptor is open; the handover names each number once, and nothing else
    // in this program has taken it before.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn set_flags(number: RawFd, flags: FdFlag) -> io::Result<()> {
    // SAFETY: the number is only used within this call, and one that is not open is an error.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    fcntl(borrowed, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

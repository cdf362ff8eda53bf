//! What supervisor and server give to one another: open descriptors by number, and what was agreed on with the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::sync::Arc;

use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use serde::{Deserialize, Serialize};

use super::process::{self, Role};
use crate::fuse::{Agreement, Device};
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

/// What a server keeps to hand over itself, should its supervisor die.
pub(crate) struct Succession {
    pub(crate) options: Options,
    pub(crate) agreement: Agreement,
    pub(crate) mount_id: [u8; 16],
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) listener: UnixListener,
    pub(crate) lock: OwnedFd,
}

impl Succession {
    /// Starts a supervisor beside this server, and returns it with the line to it.
    pub(crate) fn start(&self) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let handover = Handover {
            options: self.options.clone(),
            agreement: self.agreement,
            mount_id: self.mount_id,
            devices: self.devices.iter().map(|device| device.as_fd().as_raw_fd()).collect(),
            listener: self.listener.as_raw_fd(),
            lock: self.lock.as_raw_fd(),
            line: theirs.as_raw_fd(),
        };
        Ok((process::start(Role::Successor, &handover)?, ours))
    }
}

/// Lets the next program that is started have the descriptor.
pub(super) fn make_inheritable(number: RawFd) -> io::Result<()> {
    set_flags(number, FdFlag::empty())
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

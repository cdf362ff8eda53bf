//! Pseudo terminals: opening, ownership, size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::pty::Winsize;
use nix::sys::stat::{fchmod, Mode};
use nix::unistd::{fchown, Gid, Uid};

use super::messages::Size;
use crate::connect::ConnectError;
use crate::users::User;

/// Both ends of a new terminal.
pub(super) struct Terminal {
    /// Our end.
    pub(super) master: OwnedFd,
    /// The process's end.
    pub(super) slave: OwnedFd,
}

/// Opens a terminal of the given size that belongs to the user.
pub(super) fn open(size: Winsize, user: &User) -> io::Result<Terminal> {
    let pair = nix::pty::openpty(Some(&size), None)?;
    for end in [&pair.master, &pair.slave] {
        nix::fcntl::fcntl(end, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    }
    // Programs reopen their terminal by name, as their own user.
    fchown(&pair.slave, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    fchmod(&pair.slave, Mode::from_bits_truncate(0o620))?;
    Ok(Terminal { master: pair.master, slave: pair.slave })
}

/// Changes the size; the kernel tells the foreground job.
pub(super) fn resize(master: impl AsFd, size: Winsize) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call, and TIOCSWINSZ only reads the given structure.
    let outcome = unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    nix::errno::Errno::result(outcome)?;
    Ok(())
}

/// The kernel's form of a requested size.
pub(super) fn window(size: Size) -> Result<Winsize, ConnectError> {
    let bounded = |name: &str, number: u32| {
        u16::try_from(number).map_err(|_| {
            ConnectError::invalid_argument(format!("terminal {name} {number} is larger than 65535"))
        })
    };
    Ok(Winsize {
        ws_row: bounded("rows", size.rows)?,
        ws_col: bounded("cols", size.cols)?,
        ws_xpixel: 0,
        ws_ypixel: 0,
    })
}

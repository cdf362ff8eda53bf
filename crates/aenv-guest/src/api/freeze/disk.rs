//! Freezes and thaws the file system of the root directory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

const FIFREEZE: u32 = 0xc004_5877;
const FITHAW: u32 = 0xc004_5878;

/// Writes everything out and lets nobody write any more. Waits for those who are writing.
pub(super) fn freeze() -> io::Result<()> {
    match request(FIFREEZE) {
        // It is frozen already.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        outcome => outcome,
    }
}

/// Lets everybody write again.
pub(super) fn thaw() -> io::Result<()> {
    match request(FITHAW) {
        // It is not frozen.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        outcome => outcome,
    }
}

fn request(number: u32) -> io::Result<()> {
    let root = File::open("/")?;
    // SAFETY: both requests ignore their argument.
    Errno::result(unsafe { libc::ioctl(root.as_raw_fd(), number as _, 0) })?;
    Ok(())
}

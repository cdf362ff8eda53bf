//! The kernel's page cache of a block device: monitors that do not open disks directly write into it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Has the kernel write what it keeps of a device, and waits for that. Says nothing about durability.
pub(crate) fn write_out(path: &Path) -> io::Result<()> {
    let device = File::open(path)?;
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is involved; a length of zero means everything.
    let result = unsafe { libc::sync_file_range(device.as_raw_fd(), 0, 0, flags) };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

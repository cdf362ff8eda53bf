//! Who has a block device open. The kernel does not tell, so processes are looked through, and the device is asked
//! whether something of the kernel (a mount, a mapping) has claimed it.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The numbers of a block device.
pub(crate) type DeviceNumbers = (u32, u32);

/// How many descriptors of all processes are of each block device.
pub(crate) fn count() -> HashMap<DeviceNumbers, usize> {
    let mut counts = HashMap::new();
    for process in entries(Path::new("/proc")).filter(|name| is_number(name)) {
        let descriptors = Path::new("/proc").join(&process).join("fd");
        for descriptor in entries(&descriptors) {
            if let Some(numbers) = block_device(&descriptors.join(descriptor)) {
                *counts.entry(numbers).or_default() += 1;
            }
        }
    }
    counts
}

/// Whether a mount, a mapping or another exclusive user has the device at a path.
pub(crate) fn is_claimed(path: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path);
    matches!(opened, Err(error) if error.raw_os_error() == Some(libc::EBUSY))
}

/// Processes come and go meanwhile: what is not there any more has nothing open.
fn entries(directory: &Path) -> impl Iterator<Item = std::ffi::OsString> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

fn is_number(name: &OsStr) -> bool {
    name.as_bytes().iter().all(u8::is_ascii_digit)
}

/// The numbers of the block device that a descriptor is of.
fn block_device(descriptor: &Path) -> Option<DeviceNumbers> {
    let status = look_at(descriptor).ok()?;
    let is_block = u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    is_block.then_some((status.stx_rdev_major, status.stx_rdev_minor))
}

/// What the kernel knows by itself: a file on a network or of a program that hangs must not hold us up.
fn look_at(path: &Path) -> io::Result<libc::statx> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a record of numbers, for which zero is a value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, wanted) = (libc::AT_STATX_DONT_SYNC, libc::STATX_TYPE);
    // SAFETY: the path ends with a zero byte, and the record is large enough.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, wanted, &raw mut status) };
    if result == 0 {
        return Ok(status);
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_descriptors_of_other_kinds_are_no_block_devices() {
        let file = tempfile::tempfile().unwrap();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for descriptor in [std::os::fd::AsRawFd::as_raw_fd(&file), std::os::fd::AsRawFd::as_raw_fd(&one)] {
            assert_eq!(block_device(Path::new(&format!("/proc/self/fd/{descriptor}"))), None);
        }
        assert_eq!(block_device(Path::new("/proc/self/fd/1000000")), None);
    }
}

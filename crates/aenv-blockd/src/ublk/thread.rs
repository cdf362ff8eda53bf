//! What the thread of a queue must be before the kernel gives it requests.

use std::io;

/// CAP_SYS_ADMIN as the kernel counts.
const SYS_ADMIN: u32 = 21;
/// PR_SET_IO_FLUSHER, which the C library of this toolchain has no name for.
const SET_IO_FLUSHER: i32 = 57;
/// The form of capabilities in two words.
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Makes the calling thread fit to serve a disk.
///
/// The kernel looks for partitions on a new disk only if all threads that serve it are privileged. What is on the disk
/// is a guest's, and the kernel of the host shall not read its partition table; so this thread is not privileged.
pub(crate) fn prepare() -> io::Result<()> {
    drop_administration()?;
    // Memory that this thread needs must not be had by writing to the disk that it serves. Without CAP_SYS_RESOURCE this
    // is refused, and only matters where the host itself mounts the disk.
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    Ok(())
}

fn drop_administration() -> io::Result<()> {
    let header = Header { version: VERSION_3, process: 0 };
    let mut words = [Capabilities::default(); 2];
    // SAFETY: version 3 has two words of capabilities, which the kernel fills in.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, words.as_mut_ptr()) })?;
    words[0].effective &= !(1 << SYS_ADMIN);
    words[0].permitted &= !(1 << SYS_ADMIN);
    // SAFETY: version 3 has two words of capabilities, which the kernel reads. They are those of this thread alone.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_one_thread_gives_up_what_the_others_keep() {
        let effective = |path: &str| {
            let status = std::fs::read_to_string(path).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let before = effective("/proc/thread-self/status");
        let inside = std::thread::spawn(move || {
            prepare().unwrap();
            effective("/proc/thread-self/status")
        })
        .join()
        .unwrap();
        assert_eq!(inside, before & !(1 << SYS_ADMIN));
        assert_eq!(effective("/proc/thread-self/status"), before);
    }
}

//! Has the kernel track which pages of the guest's memory are written, without telling anybody until it is asked.

use core::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

/// Tracking lasts as long as this descriptor is open: as long as the monitor.
static TRACKER: AtomicI32 = AtomicI32::new(-1);

const API: u64 = 0xaa;
const WRITE_PROTECT_ASYNCHRONOUSLY: u64 = 1 << 15;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
/// Faults of the kernel need no answer here, and without this flag only root may have a tracker.
const USER_MODE_ONLY: c_int = 1;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;

/// `struct uffdio_api` of the kernel.
#[repr(C)]
struct Agreement {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` of the kernel.
#[repr(C)]
struct Registration {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// Begins to track a range. Asking again changes nothing.
pub(crate) unsafe fn track(address: u64, length: u64) -> Result<(), c_int> {
    if TRACKER.load(Ordering::Relaxed) >= 0 {
        return Ok(());
    }
    // SAFETY: both requests read and write exactly these structures.
    unsafe {
        let tracker = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) as c_int;
        let mut agreement = Agreement { api: API, features: WRITE_PROTECT_ASYNCHRONOUSLY, ioctls: 0 };
        let mut registration = Registration { start: address, length, mode: MODE_WRITE_PROTECT, ioctls: 0 };
        let is_tracked = tracker >= 0
            && libc::ioctl(tracker, UFFDIO_API, &raw mut agreement) == 0
            && libc::ioctl(tracker, UFFDIO_REGISTER, &raw mut registration) == 0;
        if is_tracked {
            TRACKER.store(tracker, Ordering::Relaxed);
            return Ok(());
        }
        let error = *libc::__errno_location();
        libc::close(tracker);
        Err(error)
    }
}

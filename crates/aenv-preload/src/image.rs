//! Keeps holes out of memory images. Stock QEMU gives back what a balloon holds by punching it out of the file as well
//! as of the mapping; for a private mapping the file is everybody's.

use core::mem::zeroed;
use core::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, off64_t, size_t};

/// The file that the guest's memory is a private mapping of. A monitor has at most one.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// What is mapped privately, to be written, and is larger than any part of a program, is a guest's memory.
const SMALLEST_MEMORY: size_t = 32 << 20;

/// Maps memory, and remembers whose file it is.
///
/// # Safety
/// As the function of this name in the C library.
#[no_mangle]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off64_t,
) -> *mut c_void {
    let is_memory = file >= 0
        && length >= SMALLEST_MEMORY
        && flags & libc::MAP_PRIVATE != 0
        && protection & libc::PROT_WRITE != 0;
    if is_memory {
        if let Some((device, inode)) = identify(file) {
            DEVICE.store(device, Ordering::Relaxed);
            INODE.store(inode, Ordering::Relaxed);
        }
    }
    // SAFETY: the caller's own call, handed on; the result is an address or -1, which is `MAP_FAILED`.
    unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void }
}

/// Changes the space of a file, but for holes in the memory image: there it claims success. QEMU gives the pages of
/// the mapping back afterwards, which is all that the balloon wants.
///
/// # Safety
/// As the function of this name in the C library.
#[no_mangle]
pub(crate) unsafe extern "C" fn fallocate64(
    file: c_int,
    mode: c_int,
    offset: off64_t,
    length: off64_t,
) -> c_int {
    let image = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 && image.1 != 0 && identify(file) == Some(image) {
        return 0;
    }
    // SAFETY: the caller's own call, handed on.
    unsafe { libc::syscall(libc::SYS_fallocate, file, mode, offset, length) as c_int }
}

fn identify(file: c_int) -> Option<(u64, u64)> {
    // SAFETY: the kernel fills the structure, which is plain numbers.
    unsafe {
        let mut facts: libc::stat64 = zeroed();
        (libc::fstat64(file, &mut facts) == 0).then_some((facts.st_dev, facts.st_ino))
    }
}

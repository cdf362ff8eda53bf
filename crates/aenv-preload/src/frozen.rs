//! A copy of the process that stands still: its memory stays as it is at this moment, and the original goes on.

use libc::c_int;

use crate::cage::COPY_FLAGS;

/// Makes the copy, which lives until the other end of `client` is closed. Returns its number.
pub(crate) unsafe fn freeze(client: c_int, address: u64, length: u64) -> Result<i32, c_int> {
    // SAFETY: the range is the guest's memory, of which QEMU asks that copies do without; nothing is read or written
    // there. The copy has this one thread, on a stack of its own by copy on write, and never leaves `stand_still`.
    unsafe {
        if libc::madvise(address as *mut _, length as usize, libc::MADV_DOFORK) != 0 {
            return Err(*libc::__errno_location());
        }
        match libc::syscall(libc::SYS_clone, COPY_FLAGS, 0, 0, 0, 0) {
            0 => stand_still(client),
            -1 => Err(*libc::__errno_location()),
            pid => Ok(pid as i32),
        }
    }
}

unsafe fn stand_still(client: c_int) -> ! {
    // SAFETY: system calls without memory but one byte of this function. The descriptors are the copy's own: the tap,
    // the disks and the sockets of the original must not be kept open by it.
    unsafe {
        if client > 0 {
            libc::syscall(libc::SYS_close_range, 0, client - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, client + 1, c_int::MAX, 0);
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"aenv-frozen".as_ptr(), 0, 0, 0);
        let mut byte = 0_u8;
        loop {
            let count = libc::syscall(libc::SYS_read, client, &raw mut byte, 1);
            // Whoever wanted the copy says nothing more: a byte, an end and an error other than waiting all end it.
            let is_waiting = count < 0 && matches!(*libc::__errno_location(), libc::EAGAIN | libc::EINTR);
            if !is_waiting {
                libc::syscall(libc::SYS_exit_group, 0);
            }
        }
    }
}

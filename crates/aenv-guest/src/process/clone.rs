//! A child that borrows our memory until it becomes another program. Copying the daemon for each program would cost more
//! than everything else that a start needs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Handlers are ours, and must not run in the child.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Born in its cgroup. Moving there afterwards makes the kernel wait for all processors.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a child does with its short life in our memory.
pub(super) trait Child: Sync {
    /// Becomes another program, or returns the number of the error that was in the way. No allocation, no lock, no
    /// panic, and none of libc's calls that speak to other threads: those threads are not the child's.
    fn run(&self) -> i32;
}

/// A started child.
pub(super) struct Started {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
}

/// What the child's first function finds.
struct Life<'a, C> {
    child: &'a C,
    /// Written by the child, read by us when it has ended or become a program.
    error: std::sync::atomic::AtomicI32,
}

/// Starts the child and waits until it has become a program. An error on its way there is the error of this call.
pub(super) fn start<C: Child>(child: &C, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Started> {
    let life = Life { child, error: 0.into() };
    let mut pidfd: libc::c_int = -1;
    let mut flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLEAR_SIGHAND;
    if cgroup.is_some() {
        flags |= INTO_CGROUP;
    }
    // SAFETY: all-zero bytes are a valid structure that asks for nothing.
    let mut arguments = unsafe { std::mem::zeroed::<libc::clone_args>() };
    arguments.flags = flags;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = cgroup.map_or(0, |cgroup| cgroup.as_raw_fd() as u64);
    // SAFETY: the structure and what it points to live on our stack, and so does `life`; we stand still while the child
    // uses them.
    let outcome = unsafe { clone3(&arguments, begin::<C>, (&raw const life).cast()) };
    if outcome < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-outcome).unwrap_or(libc::EINVAL)));
    }
    // SAFETY: the kernel has put a new descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    match life.error.into_inner() {
        0 => Ok(Started { pid: u32::try_from(outcome).map_err(io::Error::other)?, pidfd }),
        error => {
            bury(&pidfd);
            Err(Errno::from_raw(error).into())
        }
    }
}

/// It has ended already, so this does not wait.
fn bury(pidfd: &OwnedFd) {
    let id = pidfd.as_raw_fd().unsigned_abs();
    // SAFETY: a null pointer asks for no details.
    while unsafe { libc::waitid(libc::P_PIDFD, id, std::ptr::null_mut(), libc::WEXITED) } < 0
        && Errno::last() == Errno::EINTR
    {}
}

extern "C" fn begin<C: Child>(life: *const libc::c_void) -> ! {
    // SAFETY: `start` passes a pointer to its own `life`, and stands still until we are gone.
    let life = unsafe { &*life.cast::<Life<'_, C>>() };
    let error = life.child.run();
    life.error.store(error, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: a plain system call that does not return; nothing of our parent's is run.
    unsafe { libc::_exit(127) }
}

type Begin = extern "C" fn(*const libc::c_void) -> !;

/// Calls the kernel. In the child, `begin` is called on the same stack, below everything the parent has there, and does
/// not return; the parent goes on when the child has left the stack. The result is a pid or a negative error number.
///
/// # Safety
/// The flags must include `CLONE_VM | CLONE_VFORK`, and `argument` must be what `begin` expects.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: &libc::clone_args, begin: Begin, argument: *const libc::c_void) -> i64 {
    let outcome: i64;
    // SAFETY: without `nostack` nothing of the compiler's lies below the stack pointer, which is aligned for a call. The
    // registers that hold `begin` and `argument` are none of those that the kernel overwrites.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, {argument}",
            "call {begin}",
            "ud2",
            "2:",
            begin = in(reg) begin,
            argument = in(reg) argument,
            inout("rax") libc::SYS_clone3 => outcome,
            in("rdi") arguments,
            in("rsi") size_of::<libc::clone_args>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    outcome
}

/// See above.
///
/// # Safety
/// See above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(arguments: &libc::clone_args, begin: Begin, argument: *const libc::c_void) -> i64 {
    let outcome: i64;
    // SAFETY: as above; the kernel keeps all registers but the first.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, {argument}",
            "blr {begin}",
            "brk 1",
            "2:",
            begin = in(reg) begin,
            argument = in(reg) argument,
            in("x8") libc::SYS_clone3,
            inout("x0") arguments => outcome,
            in("x1") size_of::<libc::clone_args>(),
            out("x30") _,
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(i32);

    impl Child for Failing {
        fn run(&self) -> i32 {
            self.0
        }
    }

    #[test]
    fn an_error_in_the_child_is_the_error_of_the_call_and_leaves_no_child() {
        let error = start(&Failing(libc::EACCES), None).map(|started| started.pid).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        let children = std::fs::read_to_string("/proc/thread-self/children").expect("a list");
        assert_eq!(children, "");
    }
}

//! The seccomp filter that stands in for QEMU's `spawn=deny`, which would also deny the copies that we need. Threads
//! and those copies are allowed; other processes and programs end the monitor.

use core::mem::offset_of;

use libc::{c_int, c_long, sock_filter, sock_fprog};

/// How a frozen copy is made, and the only way that is allowed: a sibling of the monitor, so that the server, and not
/// QEMU, collects it.
pub(crate) const COPY_FLAGS: c_int = libc::CLONE_PARENT | libc::SIGCHLD;

const THREAD_FLAGS: u32 = (libc::CLONE_VM | libc::CLONE_THREAD) as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

#[cfg(target_arch = "x86_64")]
const FORKS: [c_long; 2] = [libc::SYS_fork, libc::SYS_vfork];
/// This architecture has no other way than `clone`; a number that is listed twice does no harm.
#[cfg(target_arch = "aarch64")]
const FORKS: [c_long; 2] = [libc::SYS_execve, libc::SYS_execve];

/// On x86-64 the calls of a variant with short pointers have this bit, and numbers of their own behind it.
const FOREIGN_CALLS: u32 = 0x4000_0000;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const NUMBER: u32 = offset_of!(libc::seccomp_data, nr) as u32;
const ARCH: u32 = offset_of!(libc::seccomp_data, arch) as u32;
/// The low half of the first argument: both architectures store it first.
const FIRST_ARGUMENT: u32 = offset_of!(libc::seccomp_data, args) as u32;

/// Where the filter ends, one way or the other.
const KILL: usize = 15;
const ALLOW: usize = 16;

const fn plain(code: u16, value: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k: value }
}

/// The step at place `at` goes on at one of two places behind it.
const fn branch(at: usize, code: u16, value: u32, then: usize, otherwise: usize) -> sock_filter {
    sock_filter { code, jt: (then - at - 1) as u8, jf: (otherwise - at - 1) as u8, k: value }
}

static FILTER: [sock_filter; 17] = [
    plain(LOAD, ARCH),
    branch(1, IF_EQUAL, ARCHITECTURE, 2, KILL),
    plain(LOAD, NUMBER),
    branch(3, IF_AT_LEAST, FOREIGN_CALLS, KILL, 4),
    branch(4, IF_EQUAL, libc::SYS_execve as u32, KILL, 5),
    branch(5, IF_EQUAL, libc::SYS_execveat as u32, KILL, 6),
    branch(6, IF_EQUAL, FORKS[0] as u32, KILL, 7),
    branch(7, IF_EQUAL, FORKS[1] as u32, KILL, 8),
    // The C library uses `clone` where there is no `clone3`, whose flags a filter cannot see.
    branch(8, IF_EQUAL, libc::SYS_clone3 as u32, 9, 10),
    plain(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    branch(10, IF_EQUAL, libc::SYS_clone as u32, 11, ALLOW),
    plain(LOAD, FIRST_ARGUMENT),
    branch(12, IF_EQUAL, COPY_FLAGS as u32, ALLOW, 13),
    plain(AND, THREAD_FLAGS),
    branch(14, IF_EQUAL, THREAD_FLAGS, ALLOW, KILL),
    plain(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
    plain(RETURN, libc::SECCOMP_RET_ALLOW),
];

/// Closes the cage around this process and all threads that it will have. Needs `no_new_privs`, which it was given.
pub(crate) fn close() -> bool {
    let program = sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which is complete, and never writes to it.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) == 0 }
}

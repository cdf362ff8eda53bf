//! How a process ended, as the kernel says it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It returned this code.
    Exited(i32),
    /// This signal ended it, and the second field says whether it left a core.
    Killed(i32, bool),
}

impl Fate {
    /// Takes the status of a child from the kernel; `None` while it lives.
    pub(crate) fn of_child(pidfd: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let id = libc::id_t::try_from(pidfd.as_raw_fd()).map_err(io::Error::other)?;
        Ok(wait(libc::P_PIDFD, id)?.map(|(_, fate)| fate))
    }

    /// Takes the status of any child, and says whose it is; `None` when all live.
    pub(super) fn of_any_child() -> io::Result<Option<(u32, Self)>> {
        wait(libc::P_ALL, 0)
    }
}

fn wait(kind: libc::idtype_t, id: libc::id_t) -> io::Result<Option<(u32, Fate)>> {
    // SAFETY: all-zero bytes are a valid `siginfo_t`, and the kernel fills in the one on our stack.
    let (outcome, details) = unsafe {
        let mut details = std::mem::zeroed::<libc::siginfo_t>();
        let outcome = libc::waitid(kind, id, &raw mut details, libc::WEXITED | libc::WNOHANG);
        (outcome, details)
    };
    nix::errno::Errno::result(outcome)?;
    // SAFETY: after a successful `waitid` the structure describes a child, or is still all zero.
    let (pid, status) = unsafe { (details.si_pid(), details.si_status()) };
    let fate = match details.si_code {
        libc::CLD_EXITED => Fate::Exited(status),
        code => Fate::Killed(status, code == libc::CLD_DUMPED),
    };
    Ok(u32::try_from(pid).ok().filter(|pid| *pid > 0).map(|pid| (pid, fate)))
}

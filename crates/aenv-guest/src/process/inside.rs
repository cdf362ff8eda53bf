//! What a child does between its birth and its program. It runs in the daemon's memory, whose threads go on meanwhile:
//! no allocation, no lock, no panic, system calls only.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::unistd::Uid;

use super::clone::Child;
use super::program::Program;
use super::spawn::{InputKind, Launch};

/// Processes die before the daemon does when memory runs out.
const OOM_SCORE: &CStr = c"100";
/// What programs expect to find; the daemon's own limit is higher.
const OPEN_FILES_SOFT: libc::rlim_t = 1024;
const SIGNALS: std::ops::RangeInclusive<libc::c_int> = 1..=64;

/// Signals that we ignore, or were told to ignore by whoever started us: a program would inherit that.
static IGNORED: LazyLock<Vec<libc::c_int>> =
    LazyLock::new(|| SIGNALS.filter(|one| is_ignored(*one)).collect());

/// The kernel's `struct sigaction`. Not through libc, which hides the two signals that it uses itself.
type Action = [u64; 4];
const DEFAULT: Action = [0; 4];
const MASK_BYTES: usize = 8;

/// Everything a child needs, prepared by the parent.
pub(super) struct Inside {
    program: Program,
    directory: CString,
    streams: [RawFd; 3],
    has_terminal: bool,
    user: Option<Identity>,
    ignored: &'static [libc::c_int],
}

/// Whom the child becomes.
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
}

// SAFETY: the pointers of the program point into memory that it owns, and only the child follows them.
unsafe impl Sync for Inside {}

impl Inside {
    /// Prepares a child whose descriptors 0, 1 and 2 will be `streams`.
    pub(super) fn new(launch: &Launch<'_>, program: Program, streams: &[OwnedFd; 3]) -> io::Result<Self> {
        let user = launch.user;
        let identity = || Identity { uid: user.uid, gid: user.gid, groups: user.groups.clone() };
        Ok(Self {
            program,
            directory: CString::new(launch.directory.as_os_str().as_bytes())?,
            streams: streams.each_ref().map(AsRawFd::as_raw_fd),
            has_terminal: matches!(launch.input, InputKind::Terminal(_)),
            user: Uid::effective().is_root().then(identity),
            ignored: &IGNORED,
        })
    }

    fn prepare(&self) -> nix::Result<()> {
        self.reset_signals();
        lower_oom_priority();
        limit_open_files();
        nix::unistd::setsid()?;
        self.place_streams()?;
        if self.has_terminal {
            // SAFETY: descriptor 0 is the terminal's inner end; the call takes no pointer.
            Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        if let Some(user) = &self.user {
            user.assume()?;
        }
        // After the change of user: nobody starts where they may not be.
        nix::unistd::chdir(self.directory.as_c_str())?;
        hide_descriptors();
        Ok(())
    }

    /// Their numbers are all above 2: the daemon's own standard streams are open.
    fn place_streams(&self) -> nix::Result<()> {
        for (target, source) in (0..).zip(self.streams) {
            // SAFETY: plain numbers in our own copy of the table.
            Errno::result(unsafe { libc::dup2(source, target) })?;
        }
        Ok(())
    }

    /// The mask, too, is inherited otherwise.
    fn reset_signals(&self) {
        for signal in self.ignored {
            // SAFETY: the kernel reads one structure, which is a constant.
            unsafe {
                libc::syscall(
                    libc::SYS_rt_sigaction,
                    *signal,
                    DEFAULT.as_ptr(),
                    std::ptr::null::<Action>(),
                    MASK_BYTES,
                )
            };
        }
        let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    }
}

impl Child for Inside {
    fn run(&self) -> i32 {
        match self.prepare() {
            Ok(()) => self.program.execute(),
            Err(error) => error as i32,
        }
    }
}

impl Identity {
    /// Not through libc, whose calls change all threads of the memory they run in: those are the daemon's.
    fn assume(&self) -> nix::Result<()> {
        // SAFETY: plain system calls on a list that lives as long as `self`.
        unsafe {
            Errno::result(libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()))?;
            Errno::result(libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid))?;
            Errno::result(libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid))?;
        }
        Ok(())
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = DEFAULT;
    // SAFETY: the kernel writes one structure, for which there is room.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            std::ptr::null::<Action>(),
            action.as_mut_ptr(),
            MASK_BYTES,
        )
    };
    outcome == 0 && action[0] == libc::SIG_IGN as u64
}

fn lower_oom_priority() {
    // SAFETY: constant strings; a failure leaves a score that the kernel copes with.
    unsafe {
        let descriptor = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if descriptor >= 0 {
            libc::write(descriptor, OOM_SCORE.as_ptr().cast(), OOM_SCORE.count_bytes());
            libc::close(descriptor);
        }
    }
}

fn limit_open_files() {
    // SAFETY: the structure lives on our stack for both calls; a failure leaves the limits as they are.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(OPEN_FILES_SOFT);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Whatever the daemon has open, and perhaps forgot to mark, stays with the daemon.
fn hide_descriptors() {
    // SAFETY: a plain system call without pointers; old kernels lack it, and all our descriptors have the flag anyway.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

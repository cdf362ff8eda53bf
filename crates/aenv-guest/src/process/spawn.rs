//! Starts one program: descriptors, terminal, user, limits. Everything between fork and exec is here, and nothing there
//! may allocate or lock.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::Winsize;
use nix::unistd::{fchown, pipe2, Gid, Uid};

use super::descriptor::Descriptor;
use super::frames::Channel;
use super::messages::ProcessConfig;
use super::terminal;
use crate::state::Environment;
use crate::users::User;

/// Processes die before the daemon does when memory runs out.
const OOM_SCORE: &CStr = c"100";
/// What programs expect to find; the daemon's own limit is higher.
const OPEN_FILES_SOFT: libc::rlim_t = 1024;

/// What a process reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum InputKind {
    /// Nothing.
    Null,
    /// What callers send.
    Pipe,
    /// A terminal of this size.
    Terminal(Winsize),
}

/// A program to start.
pub(super) struct Launch<'a> {
    pub(super) config: &'a ProcessConfig,
    pub(super) user: &'a User,
    pub(super) directory: &'a Path,
    pub(super) environment: &'a Environment,
    pub(super) input: InputKind,
    /// File through which the program enters its cgroup.
    pub(super) entrance: Option<&'a OwnedFd>,
}

/// A started program and our ends of its streams.
pub(super) struct Launched {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    pub(super) input: Option<Descriptor>,
    pub(super) outputs: Vec<(Channel, Descriptor)>,
    pub(super) terminal: Option<OwnedFd>,
}

/// Our ends, and what goes into the program as descriptors 0, 1 and 2.
struct Streams {
    input: Option<Descriptor>,
    outputs: Vec<(Channel, Descriptor)>,
    terminal: Option<OwnedFd>,
    inner: [Stdio; 3],
}

/// Starts the program. An error of `exec` comes back as the error of this call.
pub(super) fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let streams = open_streams(launch)?;
    let [stdin, stdout, stderr] = streams.inner;
    let mut command = Command::new(&launch.config.cmd);
    command.args(&launch.config.args).env_clear().envs(launch.environment);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let child = Inside::prepare(launch)?;
    // SAFETY: `enter` makes only async-signal-safe system calls on memory that was prepared before the fork.
    unsafe { command.pre_exec(move || child.enter()) };
    // Dropping the handle neither waits for nor ends the process; the pidfd takes over.
    let pid = command.spawn()?.id();
    // Our copies of the inner ends must go, or the streams would never end.
    drop(command);
    Ok(Launched {
        pid,
        pidfd: open_pidfd(pid)?,
        input: streams.input,
        outputs: streams.outputs,
        terminal: streams.terminal,
    })
}

fn open_streams(launch: &Launch<'_>) -> io::Result<Streams> {
    let user = launch.user;
    if let InputKind::Terminal(size) = launch.input {
        let terminal = terminal::open(size, user)?;
        let inner = [terminal.slave.try_clone()?, terminal.slave.try_clone()?, terminal.slave];
        return Ok(Streams {
            input: Some(Descriptor::new(terminal.master.try_clone()?)?),
            outputs: vec![(Channel::Pty, Descriptor::new(terminal.master.try_clone()?)?)],
            terminal: Some(terminal.master),
            inner: inner.map(Stdio::from),
        });
    }
    let (stdin, input) = match launch.input {
        InputKind::Pipe => {
            let (inner, ours) = open_pipe(user)?;
            (Stdio::from(inner), Some(Descriptor::new(ours)?))
        }
        InputKind::Null | InputKind::Terminal(_) => (Stdio::null(), None),
    };
    let (stdout_ours, stdout) = open_pipe(user)?;
    let (stderr_ours, stderr) = open_pipe(user)?;
    Ok(Streams {
        input,
        outputs: vec![
            (Channel::Stdout, Descriptor::new(stdout_ours)?),
            (Channel::Stderr, Descriptor::new(stderr_ours)?),
        ],
        terminal: None,
        inner: [stdin, Stdio::from(stdout), Stdio::from(stderr)],
    })
}

/// A pipe that belongs to the user, who may reopen it as `/dev/stdout`: reading end, writing end.
fn open_pipe(user: &User) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reading, writing) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    if user.uid != 0 {
        fchown(&writing, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    }
    Ok((reading, writing))
}

/// The kernel has given pidfds since 5.3. The child is ours and not yet reaped, so the pid means it.
fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; it returns a new descriptor that nobody else owns, or an error.
    let outcome = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = RawFd::try_from(nix::errno::Errno::result(outcome)?).map_err(io::Error::other)?;
    // SAFETY: as above, the descriptor is open and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What the child needs between fork and exec, prepared by the parent.
struct Inside {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
    directory: std::ffi::CString,
    entrance: Option<RawFd>,
    has_terminal: bool,
    is_privileged: bool,
}

impl Inside {
    fn prepare(launch: &Launch<'_>) -> io::Result<Self> {
        Ok(Self {
            uid: launch.user.uid,
            gid: launch.user.gid,
            groups: launch.user.groups.clone(),
            directory: std::ffi::CString::new(launch.directory.as_os_str().as_bytes())?,
            entrance: launch.entrance.map(AsRawFd::as_raw_fd),
            has_terminal: matches!(launch.input, InputKind::Terminal(_)),
            is_privileged: Uid::effective().is_root(),
        })
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(entrance) = self.entrance {
            write_all(entrance, c"0")?;
        }
        reset_signals();
        lower_oom_priority();
        limit_open_files();
        nix::unistd::setsid()?;
        if self.has_terminal {
            // SAFETY: descriptor 0 is the terminal's inner end; the call takes no pointer.
            nix::errno::Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        if self.is_privileged {
            self.become_user()?;
        }
        // After the change of user: nobody starts where they may not be.
        nix::unistd::chdir(self.directory.as_c_str())?;
        hide_descriptors();
        Ok(())
    }

    fn become_user(&self) -> io::Result<()> {
        // SAFETY: plain system calls on a list that lives as long as `self`.
        unsafe {
            nix::errno::Errno::result(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            nix::errno::Errno::result(libc::setresgid(self.gid, self.gid, self.gid))?;
            nix::errno::Errno::result(libc::setresuid(self.uid, self.uid, self.uid))?;
        }
        Ok(())
    }
}

fn write_all(descriptor: RawFd, text: &CStr) -> io::Result<()> {
    // SAFETY: the text is valid for its length; a bad descriptor is reported as an error.
    let outcome = unsafe { libc::write(descriptor, text.as_ptr().cast(), text.count_bytes()) };
    nix::errno::Errno::result(outcome)?;
    Ok(())
}

/// The mask and the dispositions that the daemon has from its own parent would otherwise be inherited.
fn reset_signals() {
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    /// The kernel's `struct sigaction`, all zero: the default.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_BYTES: usize = 8;
    for signal in 1..=64 {
        // SAFETY: the kernel reads one structure, which is a constant, and refuses the signals that cannot be changed.
        // Not through libc, which hides the two signals that it uses itself.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                std::ptr::null::<u64>(),
                MASK_BYTES,
            )
        };
    }
}

fn lower_oom_priority() {
    // SAFETY: constant strings; a failure leaves a score that the kernel copes with.
    unsafe {
        let descriptor = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if descriptor >= 0 {
            let _ = write_all(descriptor, OOM_SCORE);
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

/// Marks everything above the three streams close-on-exec. Not closed at once: the standard library reports a failed
/// exec through one of them.
fn hide_descriptors() {
    // SAFETY: a plain system call without pointers; old kernels lack it, and all our descriptors have the flag anyway.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// The sentence for a failed start.
pub(super) fn describe_failure(command: &str, error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    };
    format!("could not start '{command}': {reason}")
}

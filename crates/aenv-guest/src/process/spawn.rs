//! Starts one program: descriptors, terminal, user, limits. What the child itself does is in `inside`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{open, OFlag};
use nix::pty::Winsize;
use nix::sys::resource::{getrlimit, Resource};
use nix::sys::signal::{kill, Signal};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{fchown, pipe2, Gid, Pid, Uid};

use super::descriptor::Descriptor;
use super::frames::Channel;
use super::group::Group;
use super::inside::Inside;
use super::messages::ProcessConfig;
use super::program::Program;
use super::{clone, terminal};
use crate::keeper::Streams;
use crate::state::Environment;
use crate::users::User;

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
    /// The cgroup that the program is born in.
    pub(super) group: Option<&'a Group>,
}

/// A started program and our ends of its streams.
pub(super) struct Launched {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    pub(super) ends: Ends,
}

/// Our ends of a program's streams.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) input: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    pub(super) terminal: Option<OwnedFd>,
}

impl Ends {
    /// Their numbers, for the record.
    pub(super) fn streams(&self, pidfd: &OwnedFd) -> Streams {
        let number = |end: &Option<OwnedFd>| end.as_ref().map(AsRawFd::as_raw_fd);
        Streams {
            pidfd: pidfd.as_raw_fd(),
            input: number(&self.input),
            stdout: number(&self.stdout),
            stderr: number(&self.stderr),
            terminal: number(&self.terminal),
        }
    }

    /// What is read from.
    pub(super) fn outputs(&mut self) -> io::Result<Vec<(Channel, Descriptor)>> {
        let terminal = self.terminal.as_ref().map(OwnedFd::try_clone).transpose()?;
        let ends = [
            (Channel::Stdout, self.stdout.take()),
            (Channel::Stderr, self.stderr.take()),
            (Channel::Pty, terminal),
        ];
        let present = ends.into_iter().filter_map(|(channel, end)| Some((channel, end?)));
        present.map(|(channel, end)| Ok((channel, Descriptor::new(end)?))).collect()
    }
}

/// Starts the program. An error of `exec` comes back as the error of this call.
pub(super) fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let program = Program::new(launch.config, launch.environment)?;
    let (ends, inner) = open_streams(launch)?;
    let inside = Inside::new(launch, program, &inner)?;
    let started = clone::start(&inside, launch.group.map(AsFd::as_fd))?;
    // Our copies of the inner ends must go, or the streams would never end.
    drop(inner);
    Ok(Launched { pid: started.pid, pidfd: started.pidfd, ends })
}

/// Our ends, and what the program gets as descriptors 0, 1 and 2.
fn open_streams(launch: &Launch<'_>) -> io::Result<(Ends, [OwnedFd; 3])> {
    let user = launch.user;
    if let InputKind::Terminal(size) = launch.input {
        let terminal = terminal::open(size, user)?;
        check_reserve(&terminal.master)?;
        let inner = [terminal.slave.try_clone()?, terminal.slave.try_clone()?, terminal.slave];
        return Ok((Ends { terminal: Some(terminal.master), ..Ends::default() }, inner));
    }
    let (stdin, input) = match launch.input {
        InputKind::Pipe => {
            let (inner, ours) = open_pipe(user)?;
            (inner, Some(ours))
        }
        InputKind::Null | InputKind::Terminal(_) => {
            (open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?, None)
        }
    };
    let (stdout_ours, stdout) = open_pipe(user)?;
    check_reserve(&stdout_ours)?;
    let (stderr_ours, stderr) = open_pipe(user)?;
    let ends = Ends { input, stdout: Some(stdout_ours), stderr: Some(stderr_ours), terminal: None };
    Ok((ends, [stdin, stdout, stderr]))
}

/// Descriptors that processes leave to connections and files, so that somebody can still end processes.
const RESERVED_DESCRIPTORS_MAX: u64 = 16 << 10;

/// Refuses a descriptor out of the reserve. The kernel gives the lowest free number, so the number says how many are
/// in use.
fn check_reserve(descriptor: &OwnedFd) -> io::Result<()> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let reserve = (limit / 4).min(RESERVED_DESCRIPTORS_MAX);
    let number = u64::try_from(descriptor.as_raw_fd()).expect("open descriptors are not negative");
    if number >= limit - reserve {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(())
}

/// A pipe that belongs to the user, who may reopen it as `/dev/stdout`: reading end, writing end.
fn open_pipe(user: &User) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reading, writing) = pipe2(OFlag::O_CLOEXEC)?;
    if user.uid != 0 {
        fchown(&writing, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    }
    Ok((reading, writing))
}

/// Ends a program that cannot be supervised: nobody has been told of it.
pub(super) fn discard(pid: u32) {
    let Ok(pid) = i32::try_from(pid).map(Pid::from_raw) else { return };
    let _ = kill(pid, Signal::SIGKILL);
    // Not here: a program that waits for a device dies late.
    std::thread::spawn(move || waitpid(pid, None));
}

/// The sentence for a failed start.
pub(super) fn describe_failure(command: &str, error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    };
    format!("could not start '{command}': {reason}")
}

//! The first process's long life: keeps the daemon running, reaps orphans, and takes the guest down when asked.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::reboot::set_cad_enabled;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use super::boot_options::BootOptions;
use super::power::{go_down, Ending};
use super::{console, InitError};
use crate::supervisor_line::Word;

/// Where each process of the daemon gets its cgroup.
const CGROUP: &str = "/sys/fs/cgroup/aenv";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A daemon that lived shorter than this has a problem that a restart will not solve at once.
const HEALTHY_LIFE: Duration = Duration::from_secs(1);
const RESTART_DELAY_FIRST: Duration = Duration::from_millis(50);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(2);

const SIGNALS: [Signal; 5] =
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR2, Signal::SIGPWR];

/// Starts the daemon, then does the rest of the boot beside it, then runs until the guest goes down.
pub(super) fn run(options: &BootOptions, rest_of_boot: impl FnOnce()) -> Result<Infallible, InitError> {
    let failed = |error| InitError::system("supervise", error);
    let mut supervisor = Supervisor::new(options).map_err(failed)?;
    supervisor.start_daemon_when_due();
    rest_of_boot();
    supervisor.run().map_err(failed)
}

/// When the daemon is started next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Restart {
    at: Instant,
    delay: Duration,
}

impl Restart {
    fn at_once(now: Instant) -> Self {
        Self { at: now, delay: Duration::ZERO }
    }

    /// At once after a healthy life; later and later after short ones.
    fn after(self, life: Duration, now: Instant) -> Self {
        if life >= HEALTHY_LIFE {
            return Self::at_once(now);
        }
        let delay = (self.delay * 2).clamp(RESTART_DELAY_FIRST, RESTART_DELAY_MAX);
        Self { at: now + delay, delay }
    }
}

struct Supervisor<'a> {
    options: &'a BootOptions,
    signals: SignalFd,
    /// Our end of the line, and the daemon's, which every daemon inherits anew.
    line: OwnedFd,
    line_of_daemon: OwnedFd,
    daemon: Option<(Pid, Instant)>,
    restart: Restart,
    has_been_ready: bool,
}

impl<'a> Supervisor<'a> {
    fn new(options: &'a BootOptions) -> io::Result<Self> {
        let set: SigSet = SIGNALS.into_iter().collect();
        set.thread_block()?;
        // Ctrl-Alt-Del, which is how some VMMs ask, comes as SIGINT instead of a hard reset.
        let _ = set_cad_enabled(false);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (line, line_of_daemon) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok(Self {
            options,
            signals: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            line,
            line_of_daemon,
            daemon: None,
            restart: Restart::at_once(Instant::now()),
            has_been_ready: false,
        })
    }

    fn run(mut self) -> io::Result<Infallible> {
        loop {
            self.start_daemon_when_due();
            self.wait()?;
            while let Some(signal) = self.signals.read_signal()? {
                self.react(signal.ssi_signo);
            }
            self.listen_to_daemon();
        }
    }

    fn wait(&self) -> io::Result<()> {
        let limit = match self.daemon {
            Some(_) => PollTimeout::NONE,
            None => {
                let left =
                    self.restart.at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut sources = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.line.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut sources, limit) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn react(&mut self, number: u32) {
        match i32::try_from(number).map(Signal::try_from) {
            Ok(Ok(Signal::SIGCHLD)) => self.reap(),
            Ok(Ok(Signal::SIGINT)) => go_down(Ending::Restart),
            _ => go_down(Ending::Off(self.options.halt)),
        }
    }

    /// Signals of the same kind merge, so one may stand for many children.
    fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(status) => self.bury(status),
                Err(_) => {}
            }
        }
    }

    fn bury(&mut self, status: WaitStatus) {
        let Some((pid, started)) = self.daemon else { return };
        if status.pid() == Some(pid) {
            console::print(&format!("daemon ended: {status:?}"));
            let now = Instant::now();
            self.restart = self.restart.after(now - started, now);
            self.daemon = None;
        }
    }

    fn listen_to_daemon(&mut self) {
        let mut byte = [0];
        while let Ok(1) = nix::unistd::read(&self.line, &mut byte) {
            match Word::from_byte(byte[0]) {
                Some(Word::Ready) if !self.has_been_ready => {
                    self.has_been_ready = true;
                    console::print("ready");
                }
                Some(Word::PowerOff) => go_down(Ending::Off(self.options.halt)),
                Some(Word::Ready) | None => {}
            }
        }
    }

    fn start_daemon_when_due(&mut self) {
        let now = Instant::now();
        if self.daemon.is_some() || now < self.restart.at {
            return;
        }
        match self.start_daemon() {
            Ok(pid) => self.daemon = Some((pid, now)),
            Err(error) => {
                console::print(&format!("daemon could not be started: {error}"));
                self.restart = self.restart.after(Duration::ZERO, now);
            }
        }
    }

    /// Starts ourselves again in the other role; our file has no name any more, but the kernel knows it.
    fn start_daemon(&self) -> io::Result<Pid> {
        let line = self.line_of_daemon.as_raw_fd();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("aenv-guest").arg("daemon");
        command.args(["--port", &self.options.port.to_string(), "--cgroup", CGROUP]);
        command.args(["--init-socket", &line.to_string()]);
        command.env_clear().env("PATH", PATH).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: plain system calls on a descriptor that the child has inherited, and on its own mask.
        unsafe {
            command.pre_exec(move || {
                SigSet::empty().thread_set_mask()?;
                nix::unistd::setsid()?;
                let line = std::os::fd::BorrowedFd::borrow_raw(line);
                fcntl(line, FcntlArg::F_SETFD(FdFlag::empty()))?;
                Ok(())
            });
        }
        // The handle is not needed: we reap whatever ends.
        let pid = i32::try_from(command.spawn()?.id()).map_err(io::Error::other)?;
        Ok(Pid::from_raw(pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_daemon_is_restarted_at_once() {
        let now = Instant::now();
        assert_eq!(Restart::at_once(now).after(HEALTHY_LIFE, now).at, now);
    }

    #[test]
    fn short_lives_wait_longer_and_longer_up_to_a_limit() {
        let now = Instant::now();
        let mut restart = Restart::at_once(now);
        let mut delays = Vec::new();
        for _ in 0..8 {
            restart = restart.after(Duration::ZERO, now);
            delays.push(restart.delay.as_millis());
        }
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(restart.after(HEALTHY_LIFE, now).after(Duration::ZERO, now).delay, RESTART_DELAY_FIRST);
    }
}

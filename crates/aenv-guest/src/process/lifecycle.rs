//! One process from start to end: its streams, its input, its time limit, its last word.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use nix::pty::Winsize;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::sync::Mutex;

use super::descent;
use super::descriptor::Descriptor;
use super::exit::Ending;
use super::frames::{self, Channel};
use super::group::Group;
use super::messages::ProcessConfig;
use super::output::Output;
use super::spawn::Launched;
use super::terminal;
use crate::state::Daemon;

/// How long killed processes get to let go of their streams.
const LAST_OUTPUT_LIMIT: Duration = Duration::from_secs(2);

/// What a process can be fed with.
#[derive(Debug)]
pub(super) enum Input {
    /// A pipe, until it is closed; `None` also for processes that read nothing.
    Pipe(Mutex<Option<Descriptor>>),
    /// A terminal.
    Terminal { typing: Mutex<Descriptor>, master: OwnedFd },
}

/// A process that was started through the daemon.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) pid: u32,
    pub(super) config: ProcessConfig,
    pub(super) tag: Option<String>,
    pub(super) input: Input,
    pub(super) output: Arc<Output>,
    pidfd: AsyncFd<OwnedFd>,
    group: Option<Group>,
    is_reaped: AtomicBool,
    is_timed_out: AtomicBool,
}

/// What the caller asked for, kept with the process.
pub(super) struct Request {
    pub(super) config: ProcessConfig,
    pub(super) tag: Option<String>,
    pub(super) group: Option<Group>,
}

/// Our reading ends of the process's streams.
pub(super) type Outputs = Vec<(Channel, Descriptor)>;

impl Process {
    /// Takes charge of a program that was just started.
    pub(super) fn adopt(request: Request, launched: Launched) -> io::Result<(Arc<Self>, Outputs)> {
        let input = match (launched.input, launched.terminal) {
            (Some(typing), Some(master)) => Input::Terminal { typing: Mutex::new(typing), master },
            (pipe, _) => Input::Pipe(Mutex::new(pipe)),
        };
        // SAFETY: an owned descriptor always refers to the same open file, for as long as the registration lives.
        let pidfd = unsafe { AsyncFd::register_with_interest(launched.pidfd, Interest::READABLE) }?;
        let process = Self {
            pid: launched.pid,
            config: request.config,
            tag: request.tag,
            input,
            output: Arc::default(),
            pidfd,
            group: request.group,
            is_reaped: AtomicBool::new(false),
            is_timed_out: AtomicBool::new(false),
        };
        Ok((Arc::new(process), launched.outputs))
    }

    /// Whether the process itself, not only somebody on its streams, is alive.
    pub(super) fn is_running(&self) -> bool {
        !self.is_reaped.load(Ordering::Relaxed)
    }

    /// Whether its time limit ended the process.
    pub(super) fn is_timed_out(&self) -> bool {
        self.is_timed_out.load(Ordering::Relaxed)
    }

    /// Sends a signal to this process alone.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let descriptor = self.pidfd.as_raw_fd();
        let no_details = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open as long as `self`; a null pointer asks for default details.
        let outcome =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, no_details, 0) };
        nix::errno::Errno::result(outcome)?;
        Ok(())
    }

    /// Changes the size of the terminal; `None` when the process has none.
    pub(super) fn resize(&self, size: Winsize) -> Option<io::Result<()>> {
        match &self.input {
            Input::Terminal { master, .. } => Some(terminal::resize(master, size)),
            Input::Pipe(_) => None,
        }
    }

    /// Waits for the process and takes its status from the kernel.
    async fn reap(&self) -> Ending {
        loop {
            let Ok(mut ready) = self.pidfd.readable().await else { return Ending::unknown() };
            match take_status(self.pidfd.as_raw_fd()) {
                Ok(None) => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                status => {
                    self.is_reaped.store(true, Ordering::Relaxed);
                    return status.ok().flatten().unwrap_or_else(Ending::unknown);
                }
            }
        }
    }

    async fn pump(&self, channel: Channel, descriptor: &Descriptor) {
        let limit = if channel == Channel::Pty { 16 << 10 } else { 32 << 10 };
        // A stream that breaks is over, whatever the reason.
        while let Ok(Some(frame)) = descriptor.read_with(limit, |bytes| frames::output(channel, bytes)).await
        {
            self.output.publish(frame).await;
        }
    }

    async fn run_to_end(&self, outputs: &Outputs) -> Ending {
        let pumps = async {
            match outputs.as_slice() {
                [(first, first_end), (second, second_end)] => {
                    tokio::join!(self.pump(*first, first_end), self.pump(*second, second_end));
                }
                others => {
                    for (channel, descriptor) in others {
                        self.pump(*channel, descriptor).await;
                    }
                }
            }
        };
        tokio::join!(pumps, self.reap()).1
    }
}

/// Reaps a child without waiting; `None` while it lives.
fn take_status(pidfd: RawFd) -> io::Result<Option<Ending>> {
    let id = libc::id_t::try_from(pidfd).map_err(io::Error::other)?;
    // SAFETY: all-zero bytes are a valid `siginfo_t`, and the kernel fills in the one on our stack.
    let (outcome, details) = unsafe {
        let mut details = std::mem::zeroed::<libc::siginfo_t>();
        let outcome = libc::waitid(libc::P_PIDFD, id, &raw mut details, libc::WEXITED | libc::WNOHANG);
        (outcome, details)
    };
    nix::errno::Errno::result(outcome)?;
    // SAFETY: after a successful `waitid` the structure describes a child, or is still all zero.
    let (pid, status) = unsafe { (details.si_pid(), details.si_status()) };
    Ok(match details.si_code {
        _ if pid == 0 => None,
        libc::CLD_EXITED => Some(Ending::exited(status)),
        code => Some(Ending::killed(status, code == libc::CLD_DUMPED)),
    })
}

/// Stays with the process until its last output is delivered, then says how it ended.
pub(super) async fn supervise(
    daemon: Arc<Daemon>,
    process: Arc<Process>,
    outputs: Outputs,
    limit: Option<Duration>,
) {
    let ending = {
        let mut running = std::pin::pin!(process.run_to_end(&outputs));
        let in_time = match limit {
            None => Some(running.as_mut().await),
            Some(limit) => tokio::time::timeout(limit, running.as_mut()).await.ok(),
        };
        match in_time {
            Some(ending) => ending,
            None => {
                process.is_timed_out.store(true, Ordering::Relaxed);
                kill_tree(&daemon, &process).await;
                let last = tokio::time::timeout(LAST_OUTPUT_LIMIT, running).await;
                last.unwrap_or_else(|_| Ending::killed(libc::SIGKILL, false))
            }
        }
    };
    let end = frames::end(&ending);
    process.output.close(end.clone());
    daemon.processes.retire(&process, end);
    if process.is_running() {
        // Unkillable for now (it waits for a device): somebody must still bury it.
        process.reap().await;
    }
}

async fn kill_tree(daemon: &Daemon, process: &Arc<Process>) {
    // A pid that was given to another process means that nobody of the old session is left.
    if !daemon.processes.is_current(process) {
        return;
    }
    let process = Arc::clone(process);
    let killing = move || {
        let is_killed = process.group.as_ref().is_some_and(|group| group.kill().is_ok());
        if !is_killed {
            descent::kill_tree(process.pid, !process.is_running());
        }
    };
    // Walking the table of ten thousand processes takes its time.
    let _ = tokio::task::spawn_blocking(killing).await;
}

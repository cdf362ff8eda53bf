//! One process from start to end: its streams, its input, its time limit, its last word.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use nix::pty::Winsize;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::sync::{Mutex, Notify};

use super::descent;
use super::descriptor::Descriptor;
use super::exit::Ending;
use super::frames::{self, Channel};
use super::group::Group;
use super::messages::ProcessConfig;
use super::output::Output;
use super::spawn::Ends;
use super::terminal;
use crate::keeper::{Fate, Record};
use crate::state::Daemon;

/// How long killed processes get to let go of their streams.
const LAST_OUTPUT_LIMIT: Duration = Duration::from_secs(2);
/// How long a terminal may be silent after its shell has ended. The kernel has hung up on all others by then, but jobs
/// of the shell may hold on to it for ever.
const TERMINAL_SILENCE: Duration = Duration::from_millis(500);
/// Pauses between looks at the record of a process that has ended, until the keeper has written down how.
const FATE_PAUSE_FIRST: Duration = Duration::from_millis(1);
const FATE_PAUSE_MAX: Duration = Duration::from_millis(100);

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
    parent: Parent,
    record: std::sync::Mutex<Option<Record>>,
    is_reaped: AtomicBool,
    reaped: Notify,
    is_timed_out: AtomicBool,
}

/// Who takes the status of a process from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// This daemon, which started it.
    Daemon,
    /// The keeper, after the death of the daemon that started it. It writes the status into the record.
    Keeper,
}

/// A program that runs, and everything we hold of it.
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    pub(super) ends: Ends,
    pub(super) config: ProcessConfig,
    pub(super) tag: Option<String>,
    pub(super) group: Option<Group>,
    pub(super) parent: Parent,
    pub(super) record: Option<Record>,
}

/// Our reading ends of the process's streams.
pub(super) type Outputs = Vec<(Channel, Descriptor)>;

impl Process {
    /// Takes charge of a program that runs.
    pub(super) fn adopt(mut running: Running) -> io::Result<(Arc<Self>, Outputs)> {
        let outputs = running.ends.outputs()?;
        let input = match (running.ends.terminal, running.ends.input) {
            (Some(master), _) => {
                Input::Terminal { typing: Mutex::new(Descriptor::new(master.try_clone()?)?), master }
            }
            (None, pipe) => Input::Pipe(Mutex::new(pipe.map(Descriptor::new).transpose()?)),
        };
        // SAFETY: an owned descriptor always refers to the same open file, for as long as the registration lives.
        let pidfd = unsafe { AsyncFd::register_with_interest(running.pidfd, Interest::READABLE) }?;
        let process = Self {
            pid: running.pid,
            config: running.config,
            tag: running.tag,
            input,
            output: Arc::default(),
            pidfd,
            group: running.group,
            parent: running.parent,
            record: std::sync::Mutex::new(running.record),
            is_reaped: AtomicBool::new(false),
            reaped: Notify::new(),
            is_timed_out: AtomicBool::new(false),
        };
        Ok((Arc::new(process), outputs))
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

    /// Notes for the next daemon that the input is about to be closed.
    pub(super) fn forget_input(&self) {
        self.with_record(Record::forget_input);
    }

    /// Waits for the process to end, and for its status.
    async fn reap(&self) -> Ending {
        let fate = match self.parent {
            Parent::Daemon => self.take_fate().await,
            Parent::Keeper => self.read_fate().await,
        };
        self.is_reaped.store(true, Ordering::Relaxed);
        self.reaped.notify_one();
        fate.map_or_else(Ending::unknown, Ending::from)
    }

    async fn take_fate(&self) -> Option<Fate> {
        loop {
            let mut ready = self.pidfd.readable().await.ok()?;
            match Fate::of_child(self.pidfd.as_fd()) {
                Ok(None) => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                taken => {
                    let fate = taken.ok().flatten()?;
                    self.with_record(|record| record.set_fate(fate));
                    return Some(fate);
                }
            }
        }
    }

    async fn read_fate(&self) -> Option<Fate> {
        let known = || self.with_record(Record::head).flatten()?.fate;
        if known().is_none() {
            let _ended = self.pidfd.readable().await.ok()?;
        }
        let mut pause = FATE_PAUSE_FIRST;
        loop {
            if let Some(fate) = known() {
                return Some(fate);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(FATE_PAUSE_MAX);
        }
    }

    fn with_record<T>(&self, act: impl FnOnce(&Record) -> T) -> Option<T> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(act)
    }

    /// The next daemon need not know of it any more.
    fn drop_record(&self) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    async fn pump(&self, channel: Channel, descriptor: &Descriptor) {
        while let Some(frames) = self.read(channel, descriptor).await {
            for frame in frames {
                self.output.publish(frame).await;
            }
        }
    }

    /// The next output; `None` at the end. A stream that breaks is over, whatever the reason.
    async fn read(&self, channel: Channel, descriptor: &Descriptor) -> Option<Vec<Bytes>> {
        let frame_bytes = if channel == Channel::Pty { 16 << 10 } else { 32 << 10 };
        let encode = |bytes: &[u8]| {
            let frames = bytes.chunks(frame_bytes).map(|chunk| frames::output(channel, chunk));
            frames.collect::<Vec<_>>()
        };
        let reading = descriptor.read_with(encode);
        if channel != Channel::Pty {
            return reading.await.ok().flatten();
        }
        let mut reading = std::pin::pin!(reading);
        tokio::select! {
            read = reading.as_mut() => return read.ok().flatten(),
            () = self.wait_reaped() => {}
        }
        tokio::time::timeout(TERMINAL_SILENCE, reading).await.ok()?.ok().flatten()
    }

    /// For one waiter.
    async fn wait_reaped(&self) {
        if self.is_running() {
            self.reaped.notified().await;
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
    // Before our ends of the streams are closed: their numbers may soon be somebody else's.
    process.drop_record();
    daemon.memory.notice();
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

//! Keeps a daemon running, and what its processes need when it dies: both share one table of descriptors, so that
//! pipes, terminals and records outlive the daemon without a word between them. Never touches what is in the pipes.

mod fate;
mod line;
mod record;
mod restart;
mod role;
mod store;
mod sweep;

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};

pub(crate) use fate::Fate;
pub(crate) use line::{Line, Word};
pub(crate) use record::{now, Record, Streams};
pub(crate) use role::run;
pub(crate) use store::Store;

use crate::options::DaemonOptions;
use crate::state::Settings;
use restart::Restart;
use sweep::Estate;

/// In the shared table we need some numbers beyond those that the daemon can use up.
const OPEN_FILES_MAX: u64 = crate::daemon::OPEN_FILES_MAX + 256;
/// Children of a dying daemon can become ours, and end, a moment before we hear of its death.
const UNCLAIMED_MAX: usize = 4096;

/// What a daemon gets from its keeper. Without a keeper: nothing.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    /// The door, which stays open while there is no daemon.
    pub(crate) listener: Option<TcpListener>,
    /// Says words to the keeper.
    pub(crate) line: Line,
    /// Where to keep what the next daemon needs.
    pub(crate) store: Store,
    /// The settings of the daemon before.
    pub(crate) settings: Option<Settings>,
    /// The processes of the daemon before.
    pub(crate) records: Vec<Record>,
}

/// What a keeper's owner may want to react to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// One of the owner's signals.
    Signal(Signal),
    /// A word of the daemon.
    Word(Word),
}

/// Tells its story, one line at a time.
pub(crate) type Say = fn(&str);

/// Runs daemons, one after the other.
#[derive(Debug)]
pub(crate) struct Keeper {
    options: DaemonOptions,
    say: Say,
    signals: SignalFd,
    listener: TcpListener,
    /// Descriptors that are ours and not the daemon's; also those that we were started with.
    foundation: BTreeSet<RawFd>,
    daemon: Option<Life>,
    restart: Restart,
    estate: Estate,
    /// Processes of dead daemons, which are our children now.
    orphans: Vec<Orphan>,
    /// Ends of children that nobody has asked for yet, with the time at which we took them.
    unclaimed: VecDeque<(u32, Fate, u64)>,
}

/// A daemon that runs.
#[derive(Debug)]
struct Life {
    pid: u32,
    started: Instant,
    line: OwnedFd,
}

/// Our own handle of a record, through which we write down how the process ended.
#[derive(Debug)]
struct Orphan {
    pid: u32,
    record: Record,
}

impl Keeper {
    /// Opens the daemon's door. `signals` are the owner's, which are blocked from now on, as SIGCHLD is.
    pub(crate) fn new(options: DaemonOptions, signals: &[Signal], say: Say) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().chain([Signal::SIGCHLD]).collect();
        set.thread_block()?;
        crate::daemon::raise_open_files_limit(OPEN_FILES_MAX);
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let listener = TcpListener::bind(SocketAddr::new(options.listen, options.port))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            options,
            say,
            signals,
            listener,
            foundation: sweep::open_descriptors(),
            daemon: None,
            restart: Restart::at_once(Instant::now()),
            estate: Estate::default(),
            orphans: Vec::new(),
            unclaimed: VecDeque::new(),
        })
    }

    /// Where the daemon is reached.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Starts the daemon now, unless it runs or must wait.
    pub(crate) fn start_when_due(&mut self) {
        let now = Instant::now();
        if self.daemon.is_some() || now < self.restart.at {
            return;
        }
        match self.start() {
            Ok(life) => self.daemon = Some(life),
            Err(error) => {
                (self.say)(&format!("daemon could not be started: {error}"));
                self.restart = self.restart.after(Duration::ZERO, now);
            }
        }
    }

    /// Keeps the daemon running for ever.
    pub(crate) fn run(&mut self, mut react: impl FnMut(Event)) -> io::Result<Infallible> {
        loop {
            self.start_when_due();
            self.wait()?;
            while let Some(signal) = self.signals.read_signal()? {
                match i32::try_from(signal.ssi_signo).map(Signal::try_from) {
                    Ok(Ok(Signal::SIGCHLD)) => self.reap(),
                    Ok(Ok(signal)) => react(Event::Signal(signal)),
                    _ => {}
                }
            }
            while let Some(word) = self.read_word() {
                react(Event::Word(word));
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let limit = match &self.daemon {
            Some(life) => {
                sources.push(PollFd::new(life.line.as_fd(), PollFlags::POLLIN));
                PollTimeout::NONE
            }
            None => {
                let left = self.restart.at.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut sources, limit) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_word(&self) -> Option<Word> {
        let mut byte = [0];
        let life = self.daemon.as_ref()?;
        match nix::unistd::read(&life.line, &mut byte) {
            Ok(1) => Word::from_byte(byte[0]),
            _ => None,
        }
    }

    /// Signals of the same kind merge, so one may stand for many children.
    fn reap(&mut self) {
        while let Ok(Some((pid, fate))) = Fate::of_any_child() {
            if let Some(position) = self.orphans.iter().position(|orphan| orphan.pid == pid) {
                self.orphans.swap_remove(position).record.set_fate(fate);
            } else if let Some(life) = self.daemon.take_if(|life| life.pid == pid) {
                self.bury_daemon(life, fate);
            } else {
                self.unclaimed.truncate(UNCLAIMED_MAX - 1);
                self.unclaimed.push_front((pid, fate, record::now()));
            }
        }
    }

    fn bury_daemon(&mut self, life: Life, fate: Fate) {
        (self.say)(&format!("daemon ended: {fate:?}"));
        let now = Instant::now();
        self.restart = self.restart.after(now - life.started, now);
        drop(life);
        let mut ours = self.foundation.clone();
        ours.extend(self.orphans.iter().map(|orphan| orphan.record.number()));
        self.estate = sweep::sort(&ours);
        self.adopt_children();
        self.unclaimed = VecDeque::new();
    }

    /// The dead daemon's children are ours now: from here on we say how they end.
    fn adopt_children(&mut self) {
        for record in &self.estate.records {
            let Some(head) = record.head().filter(|head| head.fate.is_none()) else { continue };
            // A pid means the same process from before its record was written until somebody takes its status.
            let is_it = |(pid, _, taken): &&(u32, Fate, u64)| *pid == head.pid && *taken > head.written;
            if let Some((_, fate, _)) = self.unclaimed.iter().find(is_it) {
                record.set_fate(*fate);
            } else if !self.orphans.iter().any(|orphan| orphan.pid == head.pid) {
                match record.try_clone() {
                    Ok(record) => self.orphans.push(Orphan { pid: head.pid, record }),
                    Err(error) => {
                        (self.say)(&format!("the end of process {} will be unknown: {error}", head.pid))
                    }
                }
            }
        }
    }

    fn start(&mut self) -> io::Result<Life> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (line, line_of_daemon) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let listener = self.listener.try_clone()?;
        // SAFETY: we have one thread, so the copy of our memory is whole. In the child, nothing of ours is dropped:
        // it ends inside `be_daemon`.
        let outcome =
            unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES | libc::SIGCHLD, 0, 0, 0, 0) };
        match Errno::result(outcome)? {
            0 => be_daemon(self.options.clone(), listener, line_of_daemon, std::mem::take(&mut self.estate)),
            pid => {
                // These are the daemon's now, by the same numbers.
                std::mem::forget((listener, line_of_daemon));
                std::mem::forget(std::mem::take(&mut self.estate));
                Ok(Life { pid: u32::try_from(pid).map_err(io::Error::other)?, started: Instant::now(), line })
            }
        }
    }
}

/// The child's whole life. The table of descriptors is shared with the keeper: what is not ours must not be closed.
fn be_daemon(options: DaemonOptions, listener: TcpListener, line: OwnedFd, estate: Estate) -> ! {
    let outcome = std::panic::catch_unwind(|| {
        // The first process takes panics for the end of the world.
        let _ = std::panic::take_hook();
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        let _ = SigSet::empty().thread_set_mask();
        let _ = nix::unistd::setsid();
        let _ = nix::sys::prctl::set_name(c"aenv-guest");
        let store = Store::kept();
        let settings = store.resume_settings(estate.settings);
        crate::daemon::run(
            options,
            Inheritance {
                listener: Some(listener),
                line: Line::to_keeper(line),
                store,
                settings,
                records: estate.records,
            },
        )
    });
    let code = i32::from(!matches!(outcome, Ok(true)));
    // Without unwinding or destructors, which would reach into the keeper's half of the table.
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(code) }
}

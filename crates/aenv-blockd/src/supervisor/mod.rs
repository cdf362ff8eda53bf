//! The process that outlives servers. It holds the descriptors of the mount and the control socket, starts a server,
//! and starts the next one when that dies. It touches neither images nor the device table.

mod handover;
mod mount;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::fuse::NegotiationError;
use crate::log;
use crate::options::Options;
pub(crate) use handover::{take, Handover};
use mount::Mount;

/// What supervisor and server say over the line between them.
pub(crate) mod word {
    /// The server serves.
    pub(crate) const READY: u8 = b'Y';
    /// The server has ended and wants no successor.
    pub(crate) const END: u8 = b'E';
    /// The server cannot begin, and the next one could not either.
    pub(crate) const REFUSED: u8 = b'R';
    /// The supervisor was asked to end.
    pub(crate) const TERMINATE: u8 = b'T';
}

/// A server that lived at least this long is followed by the next at once.
const STABLE: Duration = Duration::from_secs(1);
/// The longest pause after a server that served: machines wait meanwhile.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause after a server that never did.
const MAX_PAUSE_UNREADY: Duration = Duration::from_secs(2);
/// How long the end of an earlier program may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SupervisorError {
    /// A file or directory failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The record of a mount is damaged.
    #[error("{} is damaged ({reason}): unmount what it was for by hand and remove it", .path.display())]
    BadRecord {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else is mounted where the images should appear.
    #[error("something else is mounted on {}; choose another directory or unmount it", .0.display())]
    ForeignMount(PathBuf),
    /// Another program holds the state directory and does not answer.
    #[error("{} is locked by a program that does not answer on {}", .state.display(), .control.display())]
    Locked {
        /// The state directory.
        state: PathBuf,
        /// The control socket.
        control: PathBuf,
    },
    /// The kernel does not speak our protocol.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// The first server refused to begin; it said why.
    #[error("the server could not begin")]
    Refused,
}

/// Names what failed on which path.
trait Supply<T> {
    fn supply(self, action: &'static str, path: &Path) -> Result<T, SupervisorError>;
}

impl<T> Supply<T> for io::Result<T> {
    fn supply(self, action: &'static str, path: &Path) -> Result<T, SupervisorError> {
        self.map_err(|source| SupervisorError::File { action, path: path.to_owned(), source })
    }
}

/// How a supervisor began.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It ran, and has come to its end.
    Ended,
    /// Another one serves the same state directory.
    RunsAlready,
}

/// What becomes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ended,
    Refused,
    /// Without having served.
    DiedEarly,
    Died,
}

/// Serves until told to end.
pub(crate) fn supervise(options: &Options) -> Result<Beginning, SupervisorError> {
    let state = &options.state;
    DirBuilder::new().recursive(true).mode(0o700).create(state).supply("create", state)?;
    let Some(lock) = lock_unless_served(options)? else { return Ok(Beginning::RunsAlready) };
    mount::clean_dead(state)?;
    let terminate = block_termination().supply("watch signals for", state)?;
    let listener = listen(&options.control)?;
    let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    let mut supervisor = Supervisor { options, lock, listener, terminate, threads };
    let outcome = supervisor.run();
    let _ = fs::remove_file(&options.control);
    outcome.map(|()| Beginning::Ended)
}

struct Supervisor<'a> {
    options: &'a Options,
    lock: Flock<File>,
    listener: UnixListener,
    terminate: SignalFd,
    threads: usize,
}

impl Supervisor<'_> {
    fn run(&mut self) -> Result<(), SupervisorError> {
        let mut pause = Duration::ZERO;
        let mut is_first = true;
        let mut mount = self.mount()?;
        let mut mount_id = random_id()?;
        loop {
            let began = Instant::now();
            let fate = self.run_server(&mount, mount_id)?;
            match fate {
                Fate::Ended => break,
                Fate::Refused if is_first => {
                    mount.remove(&self.options.state);
                    return Err(SupervisorError::Refused);
                }
                Fate::Refused | Fate::DiedEarly | Fate::Died => {}
            }
            is_first = false;
            let longest = if fate == Fate::Died { MAX_PAUSE } else { MAX_PAUSE_UNREADY };
            pause = match fate == Fate::Died && began.elapsed() > STABLE {
                true => Duration::ZERO,
                false => (2 * pause).clamp(Duration::from_millis(10), longest),
            };
            log::error("server_died", &[("next_in_ms", &(pause.as_millis() as u64))]);
            if !mount.agreement.can_resend() || self.options.without_resend {
                // Requests that the dead server had read would never be answered.
                log::error("mount_abandoned", &[("reason", &"this kernel cannot hand out requests again")]);
                mount.remove(&self.options.state);
                mount = self.mount()?;
                mount_id = random_id()?;
            }
            thread::sleep(pause);
        }
        mount.remove(&self.options.state);
        Ok(())
    }

    fn mount(&self) -> Result<Mount, SupervisorError> {
        Mount::make(&self.options.state, &self.options.mount, self.threads, self.options.read_ahead_kib)
    }

    fn run_server(&self, mount: &Mount, mount_id: [u8; 16]) -> Result<Fate, SupervisorError> {
        let (mut ours, theirs) = UnixStream::pair().supply("create", Path::new("the line to the server"))?;
        let handover = Handover {
            options: self.options.clone(),
            agreement: mount.agreement,
            mount_id,
            devices: mount.devices.iter().map(|device| device.as_fd().as_raw_fd()).collect(),
            listener: self.listener.as_raw_fd(),
            lock: self.lock.as_raw_fd(),
            line: theirs.as_raw_fd(),
        };
        let mut child = spawn(&handover)?;
        drop(theirs);
        log::info("server_started", &[("pid", &u64::from(child.id()))]);
        let fate = self.listen_to(&mut ours, &mut child);
        // The line ends when the process has ended, or is about to.
        let _ = child.wait();
        Ok(fate)
    }

    /// Hears what the server has to say until its end.
    fn listen_to(&self, line: &mut UnixStream, child: &mut Child) -> Fate {
        let mut fate = Fate::DiedEarly;
        loop {
            let mut watched = [
                PollFd::new(line.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.terminate.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    log::error("line_lost", &[("reason", &errno.desc())]);
                    let _ = child.kill();
                    return fate;
                }
            }
            let is_ready = |watched: &PollFd<'_>| watched.any().unwrap_or(false);
            let (has_word, has_signal) = (is_ready(&watched[0]), is_ready(&watched[1]));
            if has_signal && matches!(self.terminate.read_signal(), Ok(Some(_))) {
                let _ = line.write_all(&[word::TERMINATE]);
            }
            if !has_word {
                continue;
            }
            let mut said = [0];
            match line.read(&mut said) {
                Ok(1) if said[0] == word::READY => fate = Fate::Died,
                Ok(1) if said[0] == word::END => fate = Fate::Ended,
                Ok(1) if said[0] == word::REFUSED => fate = Fate::Refused,
                Ok(1) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return fate,
            }
        }
    }
}

fn spawn(handover: &Handover) -> Result<Child, SupervisorError> {
    let program = program();
    for descriptor in handover.descriptors() {
        // This process starts nothing but servers, which are all to have these descriptors.
        handover::make_inheritable(&descriptor).supply("pass on a descriptor to", &program)?;
    }
    let words = serde_json::to_string(handover).map_err(io::Error::other).supply("start", &program)?;
    Command::new(&program).arg(SERVE).arg(words).spawn().supply("start", &program)
}

/// The first word of the command line of a server.
pub(crate) const SERVE: &str = "serve";

/// The program by its path, so that a newer one in the same place is the next server; else the one that runs.
fn program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => running,
    }
}

/// Locks the state directory; none when another program serves it. One that was killed takes a moment to end.
fn lock_unless_served(options: &Options) -> Result<Option<Flock<File>>, SupervisorError> {
    let began = Instant::now();
    loop {
        if let Some(lock) = lock(&options.state)? {
            return Ok(Some(lock));
        }
        if answers(&options.control) {
            return Ok(None);
        }
        if began.elapsed() > LOCK_PATIENCE {
            let (state, control) = (options.state.clone(), options.control.clone());
            return Err(SupervisorError::Locked { state, control });
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn lock(state: &Path) -> Result<Option<Flock<File>>, SupervisorError> {
    let path = state.join("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path).supply("open", &path)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(io::Error::from(errno)).supply("lock", &path),
    }
}

/// Whether a server answers on the socket.
fn answers(control: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        crate::control::write_frame(&mut stream, br#"{"version":1,"id":1,"verb":"hello","arguments":{}}"#)?;
        Ok(crate::control::read_frame(&mut stream)?.is_some())
    };
    ask().unwrap_or(false)
}

/// The lock of the state directory proves that nobody listens on a socket that is there.
fn listen(control: &Path) -> Result<UnixListener, SupervisorError> {
    match fs::remove_file(control) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).supply("remove", control),
        _ => {}
    }
    let listener = UnixListener::bind(control).supply("listen on", control)?;
    fs::set_permissions(control, Permissions::from_mode(0o600)).supply("protect", control)?;
    Ok(listener)
}

/// Signals are read, not caught. Servers inherit that they are blocked.
fn block_termination() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let descriptor = SignalFd::new(&signals)?;
    Ok(descriptor)
}

fn random_id() -> Result<[u8; 16], SupervisorError> {
    let source = Path::new("/dev/urandom");
    let mut id = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut id)).supply("read", source)?;
    Ok(id)
}

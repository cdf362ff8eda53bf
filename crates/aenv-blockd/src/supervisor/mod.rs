//! The process that outlives servers. It holds the descriptors of the mount and the control socket, starts a server,
//! and starts the next one when that dies. It touches neither images nor the device table.

mod error;
mod handover;
mod mount;
mod process;
mod start;

use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{listen, Backlog};

use crate::fuse::Device;
use crate::log;
use crate::options::Options;
pub(crate) use error::SupervisorError;
use error::Supply;
pub(crate) use handover::{take, Handover, Succession};
use mount::Mount;
pub(crate) use process::Role;
use start::Lock;

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

/// Makes the mount and serves until told to end.
pub(crate) fn supervise(options: &Options) -> Result<Beginning, SupervisorError> {
    let state = &options.state;
    DirBuilder::new().recursive(true).mode(0o700).create(state).supply("create", state)?;
    let Some(lock) = start::lock_unless_served(options)? else { return Ok(Beginning::RunsAlready) };
    let options = &start::settle_exporter(options)?;
    mount::clean_dead(state)?;
    let terminate = start::block_termination().supply("watch signals for", state)?;
    let listener = start::listen(&options.control)?;
    let supervisor = Supervisor { options, lock, listener, terminate };
    let outcome = supervisor.begin();
    // Nobody answers there any more.
    let _ = fs::remove_file(&options.control);
    outcome.map(|()| Beginning::Ended)
}

/// Takes the place of a supervisor that died, beside the server that goes on.
pub(crate) fn succeed(handover: &Handover) -> Result<Beginning, SupervisorError> {
    let options = &handover.options;
    let state = &options.state;
    let adopt = || -> io::Result<_> {
        let devices = handover.devices.iter().map(|&number| take(number).map(Device::new));
        let devices = devices.collect::<io::Result<Vec<_>>>()?;
        let listener = UnixListener::from(take(handover.listener)?);
        // Peers ask the kernel who listens: from now on, this process.
        listen(&listener, Backlog::MAXCONN)?;
        Ok((devices, listener, UnixStream::from(take(handover.line)?), take(handover.lock)?))
    };
    let (devices, listener, line, lock) = adopt().supply("take over", state)?;
    let terminate = start::block_termination().supply("watch signals for", state)?;
    let mount =
        Mount { path: options.mount.clone(), devices, agreement: handover.agreement, id: handover.mount_id };
    let supervisor = Supervisor { options, lock: Lock::Inherited(lock), listener, terminate };
    log::info("supervisor_succeeded", &[("pid", &u64::from(std::process::id()))]);
    let outcome = supervisor.watch_on(mount, line);
    let _ = fs::remove_file(&options.control);
    outcome.map(|()| Beginning::Ended)
}

struct Supervisor<'a> {
    options: &'a Options,
    lock: Lock,
    listener: UnixListener,
    terminate: SignalFd,
}

impl Supervisor<'_> {
    fn begin(&self) -> Result<(), SupervisorError> {
        let mount = self.mount()?;
        let began = Instant::now();
        match self.run_server(&mount) {
            Fate::Refused => {
                mount.remove(&self.options.state);
                Err(SupervisorError::Refused)
            }
            fate => self.go_on(mount, fate, began),
        }
    }

    fn watch_on(&self, mount: Mount, mut line: UnixStream) -> Result<(), SupervisorError> {
        let began = Instant::now();
        let fate = self.listen_to(&mut line, Fate::Died);
        self.go_on(mount, fate, began)
    }

    /// Follows a server by the next until one ends for good.
    fn go_on(&self, mount: Mount, fate: Fate, began: Instant) -> Result<(), SupervisorError> {
        let (mut mount, mut fate, mut began) = (mount, fate, began);
        let mut pause = Duration::ZERO;
        while fate != Fate::Ended {
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
            }
            thread::sleep(pause);
            began = Instant::now();
            fate = self.run_server(&mount);
        }
        mount.remove(&self.options.state);
        Ok(())
    }

    fn mount(&self) -> Result<Mount, SupervisorError> {
        let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
        Mount::make(&self.options.state, &self.options.mount, threads, self.options.read_ahead_kib)
    }

    fn run_server(&self, mount: &Mount) -> Fate {
        let (mut ours, mut child) = match self.start_server(mount) {
            Ok(started) => started,
            Err(error) => {
                log::error("server_not_started", &[("reason", &log::chain(&error))]);
                return Fate::DiedEarly;
            }
        };
        log::info("server_started", &[("pid", &u64::from(child.id()))]);
        let fate = self.listen_to(&mut ours, Fate::DiedEarly);
        // The line ends when the process has ended, or is about to.
        let _ = child.wait();
        fate
    }

    fn start_server(&self, mount: &Mount) -> Result<(UnixStream, Child), SupervisorError> {
        let (ours, theirs) = UnixStream::pair().supply("connect to a server of", &mount.path)?;
        let handover = Handover {
            options: self.options.clone(),
            agreement: mount.agreement,
            mount_id: mount.id,
            devices: mount.devices.iter().map(|device| device.as_fd().as_raw_fd()).collect(),
            listener: self.listener.as_raw_fd(),
            lock: self.lock.as_raw_fd(),
            line: theirs.as_raw_fd(),
        };
        let child = process::start(Role::Server, &handover).supply("start a server of", &mount.path)?;
        Ok((ours, child))
    }

    /// Hears what the server has to say until its end.
    fn listen_to(&self, line: &mut UnixStream, fate: Fate) -> Fate {
        let mut fate = fate;
        loop {
            let mut watched = [
                PollFd::new(line.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.terminate.as_fd(), PollFlags::POLLIN),
            ];
            if let Err(errno) = poll(&mut watched, PollTimeout::NONE) {
                if errno != Errno::EINTR {
                    log::error("line_not_watched", &[("reason", &errno.desc())]);
                    thread::sleep(MAX_PAUSE);
                }
                continue;
            }
            let is_ready = |watched: &PollFd<'_>| watched.any().unwrap_or(false);
            let (has_word, has_signal) = (is_ready(&watched[0]), is_ready(&watched[1]));
            if has_signal && matches!(self.terminate.read_signal(), Ok(Some(_))) {
                // A server that is gone is noticed right below.
                let _ = line.write_all(&[word::TERMINATE]);
            }
            let mut said = [0];
            match if has_word { line.read(&mut said) } else { continue } {
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

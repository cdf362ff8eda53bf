//! What a supervisor needs before there is a mount: the state directory for itself, a socket, and ears for signals.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::error::{SupervisorError, Supply};
use crate::log;
use crate::options::{DiskExporter, Options};
use crate::ublk::ControlDevice;

/// How long the end of an earlier program may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// The lock of the state directory: taken by the first supervisor, shared by all processes that come after it.
pub(super) enum Lock {
    /// Taken by this process.
    Taken(Flock<File>),
    /// Taken by an earlier one, and still held.
    Inherited(OwnedFd),
}

impl AsRawFd for Lock {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Taken(lock) => lock.as_raw_fd(),
            Self::Inherited(descriptor) => descriptor.as_raw_fd(),
        }
    }
}

/// Locks the state directory; none when another program serves it. One that was killed takes a moment to end.
pub(super) fn lock_unless_served(options: &Options) -> Result<Option<Lock>, SupervisorError> {
    let began = Instant::now();
    loop {
        if let Some(lock) = lock(&options.state)? {
            return Ok(Some(Lock::Taken(lock)));
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

/// Decides how disks are shown, once, so that every server shows them in the same way.
pub(super) fn settle_exporter(options: &Options) -> Result<Options, SupervisorError> {
    let exporter = match (options.exporter, options.exporter.needs_driver().then(ControlDevice::open)) {
        (_, None) => DiskExporter::Fuse,
        (_, Some(Ok(_))) => DiskExporter::Ublk,
        (DiskExporter::Ublk, Some(Err(error))) => return Err(SupervisorError::NoBlockDevices(error)),
        (_, Some(Err(error))) => {
            log::info("ublk_not_used", &[("reason", &log::chain(&error))]);
            DiskExporter::Fuse
        }
    };
    Ok(Options { exporter, ..options.clone() })
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
pub(super) fn listen(control: &Path) -> Result<UnixListener, SupervisorError> {
    match fs::remove_file(control) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).supply("remove", control),
        _ => {}
    }
    let listener = UnixListener::bind(control).supply("listen on", control)?;
    fs::set_permissions(control, Permissions::from_mode(0o600)).supply("protect", control)?;
    Ok(listener)
}

/// Signals are read, not caught. Servers inherit that they are blocked.
pub(super) fn block_termination() -> io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let descriptor = SignalFd::new(&signals)?;
    Ok(descriptor)
}

pub(super) fn random_id() -> Result<[u8; 16], SupervisorError> {
    let source = Path::new("/dev/urandom");
    let mut id = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut id)).supply("read", source)?;
    Ok(id)
}

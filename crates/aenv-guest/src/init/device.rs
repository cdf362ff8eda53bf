//! Waits for a device node to appear, without polling: boot latency counts.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Returns once the node exists.
pub(super) fn wait_for(device: &Path) -> io::Result<()> {
    if device.exists() {
        return Ok(());
    }
    let deadline = Instant::now() + WAIT_LIMIT;
    let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    changes.add_watch("/dev", AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)?;
    // The watch came first: a node made since the first look is seen by this one, a later one wakes us.
    while !device.exists() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the device did not appear"));
        }
        // Devices in directories below `/dev` make no event here; a short limit covers them.
        let limit = PollTimeout::try_from(left.min(Duration::from_millis(50))).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(&changes), PollFlags::POLLIN)], limit)?;
        let _ = changes.read_events();
    }
    Ok(())
}

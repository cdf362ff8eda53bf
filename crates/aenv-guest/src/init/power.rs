//! The ways down: ends all processes within bounds, writes the disk out, switches the machine off.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{sync, Pid};

use super::boot_options::Halt;
use super::console;

/// How long processes may take to end when asked, and then when not asked.
const TERM_LIMIT: Duration = Duration::from_millis(1500);
const KILL_LIMIT: Duration = Duration::from_millis(500);

/// How the guest goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// For good.
    Off(Halt),
    /// To come up again.
    Restart,
}

/// Ends everything and switches off.
pub(super) fn go_down(ending: Ending) -> ! {
    sync();
    // Everybody but us; the kernel spares the first process.
    let everybody = Pid::from_raw(-1);
    let _ = kill(everybody, Signal::SIGTERM);
    // Stopped processes hear it only when they go on.
    let _ = kill(everybody, Signal::SIGCONT);
    if !all_ended_within(TERM_LIMIT) {
        let _ = kill(everybody, Signal::SIGKILL);
        all_ended_within(KILL_LIMIT);
    }
    // What the daemon had open is in our table too, and would keep the disk busy.
    // SAFETY: a plain system call; nothing that has a descriptor above the standard streams is used any more.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    release_disk();
    switch(match ending {
        Ending::Off(Halt::PowerOff) => RebootMode::RB_POWER_OFF,
        Ending::Off(Halt::Reset) | Ending::Restart => RebootMode::RB_AUTOBOOT,
    })
}

/// For errors before there is anything to end. On machines without a power-off the kernel then resets.
pub(super) fn off_at_once() {
    sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    let _ = reboot(RebootMode::RB_AUTOBOOT);
}

/// Orphans become our children, so no child left means no process left.
fn all_ended_within(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) if Instant::now() >= deadline => return false,
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(5)),
            _ => {}
        }
    }
}

/// What other mounts hold is let go first; the root cannot be unmounted below us, but made read-only.
fn release_disk() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    for point in points.into_iter().rev().filter(|point| *point != "/") {
        let _ = umount2(point, MntFlags::MNT_DETACH);
    }
    sync();
    if let Err(error) =
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>)
    {
        console::print(&format!("remount / read-only: {error}"));
    }
    sync();
}

fn switch(mode: RebootMode) -> ! {
    let _ = reboot(mode);
    // A machine that cannot be switched off this way is reset, which ends its VMM too.
    let _ = reboot(RebootMode::RB_AUTOBOOT);
    loop {
        std::thread::park();
    }
}

//! The first process's long life: keeps the daemon running, reaps orphans, and takes the guest down when asked.

use std::convert::Infallible;
use std::path::PathBuf;

use nix::sys::reboot::set_cad_enabled;
use nix::sys::signal::Signal;

use super::boot_options::BootOptions;
use super::power::{go_down, Ending};
use super::{console, workload, InitError};
use crate::keeper::{Event, Keeper, Word};
use crate::options::DaemonOptions;

const SIGNALS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR2, Signal::SIGPWR];

/// Starts the daemon, then does the rest of the boot beside it, then runs until the guest goes down.
pub(super) fn run(options: &BootOptions, rest_of_boot: impl FnOnce()) -> Result<Infallible, InitError> {
    let failed = |error| InitError::system("supervise", error);
    // Ctrl-Alt-Del, which is how some VMMs ask, comes as SIGINT instead of a hard reset.
    let _ = set_cad_enabled(false);
    let daemon = DaemonOptions {
        port: options.port,
        cgroup: Some(PathBuf::from(workload::CGROUP)),
        owns_machine: true,
        ..DaemonOptions::default()
    };
    let mut keeper = Keeper::new(daemon, &SIGNALS, console::print).map_err(failed)?;
    keeper.start_when_due();
    rest_of_boot();
    let mut has_been_ready = false;
    let react = |event| match event {
        Event::Word(Word::Ready) => {
            if !std::mem::replace(&mut has_been_ready, true) {
                console::print("ready");
            }
        }
        Event::Signal(Signal::SIGINT) => go_down(Ending::Restart),
        Event::Signal(_) | Event::Word(Word::PowerOff) => go_down(Ending::Off(options.halt)),
    };
    keeper.run(react).map_err(failed)
}

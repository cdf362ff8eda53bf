//! The keeper as a program of its own, for machines whose first process is somebody else's.

use std::process::ExitCode;

use nix::sys::signal::Signal;

use super::{Event, Keeper, Word};
use crate::options::DaemonOptions;

/// Keeps a daemon running until told to stop.
pub(crate) fn run(options: DaemonOptions) -> ExitCode {
    let Err(error) = keep(options);
    eprintln!("aenv-guest: keeper: {error}");
    ExitCode::FAILURE
}

fn keep(options: DaemonOptions) -> std::io::Result<std::convert::Infallible> {
    // Children of a dead daemon come to us, not to the machine's first process.
    nix::sys::prctl::set_child_subreaper(true)?;
    let signals = [Signal::SIGTERM, Signal::SIGINT];
    let mut keeper = Keeper::new(options, &signals, |line| eprintln!("aenv-guest: {line}"))?;
    let address = keeper.address()?;
    keeper.run(|event| match event {
        Event::Word(Word::Ready) => println!("aenv-guest: ready on {address}"),
        // The daemon's parent-death signal ends it with us.
        Event::Signal(_) | Event::Word(Word::PowerOff) => std::process::exit(0),
    })
}

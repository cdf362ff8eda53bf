//! The program that serves disks and memory images as regular files of one FUSE mount, disks as block devices too. This file owns which part of the
//! program runs; everything else is in the modules.

mod control;
mod digest;
mod export;
mod fuse;
mod image;
mod layers;
mod log;
mod options;
mod refusal;
mod server;
mod supervisor;
mod table;
mod trace;
mod ublk;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use options::{Options, USAGE};
use supervisor::{Beginning, Handover, Role, SupervisorError};

/// Exit status of a command line that is not understood.
const MISUSE: u8 = 2;

/// Runs the program with the words behind its name.
pub fn run(words: Vec<OsString>) -> ExitCode {
    if let Some((role, handover)) = Role::parse(&words) {
        return match serde_json::from_str(&handover) {
            Ok(handover) => take_over(role, &handover),
            Err(error) => misuse(&error),
        };
    }
    match Options::parse(&words) {
        Ok(options) => report(&options, supervisor::supervise(&options)),
        Err(error) => misuse(&error),
    }
}

fn misuse(error: &dyn Error) -> ExitCode {
    eprintln!("aenv-blockd: {error}\n{USAGE}");
    ExitCode::from(MISUSE)
}

fn take_over(role: Role, handover: &Handover) -> ExitCode {
    match role {
        Role::Server => server::serve(handover),
        Role::Successor => report(&handover.options, supervisor::succeed(handover)),
    }
}

fn report(options: &Options, outcome: Result<Beginning, SupervisorError>) -> ExitCode {
    match outcome {
        Ok(Beginning::Ended) => ExitCode::SUCCESS,
        Ok(Beginning::RunsAlready) => {
            println!(
                "aenv-blockd already serves {} on {}",
                options.state.display(),
                options.control.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("aenv-blockd: {}", log::chain(&error));
            ExitCode::FAILURE
        }
    }
}

//! The program that serves disks and memory images as regular files of one FUSE mount. This file owns which part of the
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

use std::ffi::OsString;
use std::process::ExitCode;

use options::{Options, USAGE};
use supervisor::Beginning;

/// Exit status of a command line that is not understood.
const MISUSE: u8 = 2;

/// Runs the program with the words behind its name.
pub fn run(words: Vec<OsString>) -> ExitCode {
    match words.as_slice() {
        [role, handover] if role == supervisor::SERVE => server::serve(&handover.to_string_lossy()),
        words => match Options::parse(words) {
            Ok(options) => supervise(&options),
            Err(error) => {
                eprintln!("aenv-blockd: {error}\n{USAGE}");
                ExitCode::from(MISUSE)
            }
        },
    }
}

fn supervise(options: &Options) -> ExitCode {
    match supervisor::supervise(options) {
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

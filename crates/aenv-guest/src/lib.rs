//! The guest program of a sandbox. One static binary, several roles: first process of the initramfs, and the daemon that
//! speaks the sandbox contract on port 49983. A library only for the sake of its fuzz targets.

mod api;
mod connect;
mod daemon;
mod files;
mod filesystem;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod http;
mod init;
mod keeper;
mod memory;
mod options;
mod paths;
mod process;
mod state;
mod users;

use std::process::ExitCode;

use options::Role;

/// Plays the role that the command line, or being the first process, asks for.
pub fn run(arguments: &[String]) -> ExitCode {
    match options::parse(arguments, std::process::id()) {
        Ok(Role::Init) => init::run(),
        Ok(Role::Daemon(options)) => match daemon::run(options, keeper::Inheritance::default()) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Ok(Role::Keep(options)) => keeper::run(options),
        Err(error) => {
            eprintln!("aenv-guest: {error}\n{}", options::USAGE);
            ExitCode::from(2)
        }
    }
}

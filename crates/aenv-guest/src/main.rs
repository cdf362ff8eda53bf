//! The guest program of a sandbox. One static binary, two roles: first process of the initramfs, and the daemon that
//! speaks the sandbox contract on port 49983. This file only chooses the role.

mod api;
mod connect;
mod daemon;
mod files;
mod filesystem;
mod forward;
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

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    match options::parse(&arguments, std::process::id()) {
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

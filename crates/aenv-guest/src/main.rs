//! The program around the library. Nothing but the way in.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    aenv_guest::run(&arguments)
}

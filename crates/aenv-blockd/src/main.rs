//! The program around the library. Nothing but the way in.

use std::process::ExitCode;

fn main() -> ExitCode {
    aenv_blockd::run(std::env::args_os().skip(1).collect())
}

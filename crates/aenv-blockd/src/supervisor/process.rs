//! Starting the other process of the two: a server by its supervisor, a supervisor by a server that lost its own.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use super::handover::{make_inheritable, Handover};

/// What a process is that was handed something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Serves the mount.
    Server,
    /// Watches a server that runs already.
    Successor,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Server => "serve",
            Self::Successor => "supervise",
        }
    }

    /// Understands the command line of `start`.
    pub(crate) fn parse(words: &[OsString]) -> Option<(Self, String)> {
        let [word, option, _, handover] = words else { return None };
        let role = [Self::Server, Self::Successor].into_iter().find(|role| word == role.word())?;
        (option == "--state").then(|| (role, handover.to_string_lossy().into_owned()))
    }
}

/// Starts a process in a role. The state directory is on its command line for whoever looks for our processes.
pub(super) fn start(role: Role, handover: &Handover) -> io::Result<Child> {
    for descriptor in handover.descriptors() {
        // Our processes start nothing but one another, and the one that starts is to have these.
        make_inheritable(descriptor)?;
    }
    let words = serde_json::to_string(handover).map_err(io::Error::other)?;
    Command::new(program()).arg(role.word()).arg("--state").arg(&handover.options.state).arg(words).spawn()
}

/// The program by the path that it was started by, so that a newer one in the same place is the next to run; else the
/// one that runs.
fn program() -> PathBuf {
    let called = std::env::args_os().next().map(PathBuf::from);
    let found = called.filter(|path| path.is_absolute() && path.is_file());
    found.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

//! How a process ended, in the words of the contract.

use serde::Serialize;

use crate::keeper::Fate;

/// The `end` event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ending {
    exit_code: i32,
    exited: bool,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<Fate> for Ending {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Exited(code) => Self::exited(code),
            Fate::Killed(signal, dumped_core) => Self::killed(signal, dumped_core),
        }
    }
}

impl Ending {
    /// The process returned a code.
    pub(super) fn exited(code: i32) -> Self {
        let status = format!("exit status {code}");
        let error = (code != 0).then(|| status.clone());
        Self { exit_code: code, exited: true, status, error }
    }

    /// A signal ended the process.
    pub(super) fn killed(signal: i32, dumped_core: bool) -> Self {
        let suffix = if dumped_core { " (core dumped)" } else { "" };
        let status = format!("signal: {}{suffix}", signal_text(signal));
        Self { exit_code: -1, exited: false, error: Some(status.clone()), status }
    }

    /// Nobody could tell us how it ended.
    pub(super) fn unknown() -> Self {
        let status = "exit status unknown".to_owned();
        Self { exit_code: -1, exited: false, error: Some(status.clone()), status }
    }
}

/// Clients compare these texts, which are those of Go.
fn signal_text(signal: i32) -> String {
    let text = match signal {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGTRAP => "trace/breakpoint trap",
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGUSR1 => "user defined signal 1",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGUSR2 => "user defined signal 2",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        other => return format!("signal {other}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_has_no_error() {
        let ending = Ending::exited(0);
        assert_eq!((ending.exit_code, ending.exited, ending.error), (0, true, None));
    }

    #[test]
    fn death_by_signal_has_its_text() {
        let ending = Ending::killed(libc::SIGKILL, false);
        assert_eq!((ending.exit_code, ending.exited), (-1, false));
        assert_eq!(
            (ending.status.as_str(), ending.error.as_deref()),
            ("signal: killed", Some("signal: killed"))
        );
        assert_eq!(Ending::killed(libc::SIGABRT, true).status, "signal: aborted (core dumped)");
        assert_eq!(Ending::killed(35, false).status, "signal: signal 35");
    }
}

//! The words of the command line. Owns which role the program plays and the daemon's options; does no I/O.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// What the program prints when it does not understand its command line.
pub(crate) const USAGE: &str =
    "usage: aenv-guest daemon|keep [--listen ADDRESS] [--port PORT] [--state-directory DIRECTORY] \
                                [--cgroup DIRECTORY]";

/// The port of the wire contract.
pub(crate) const DEFAULT_PORT: u16 = 49983;

/// What this run of the program is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// First process of the guest.
    Init,
    /// The daemon that clients talk to.
    Daemon(DaemonOptions),
    /// Keeps a daemon running, as the first process does, on a machine that has another one.
    Keep(DaemonOptions),
}

/// How the daemon is reached and where it keeps its small files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonOptions {
    /// Address to listen on.
    pub(crate) listen: IpAddr,
    /// Port to listen on; 0 lets the kernel choose and prints the choice.
    pub(crate) port: u16,
    /// Directory of the `.E2B_*` identity files.
    pub(crate) state_directory: PathBuf,
    /// Directory in cgroup v2 below which each process gets a group; without it there are no groups.
    pub(crate) cgroup: Option<PathBuf>,
    /// Whether clock, host name and machine id are the daemon's to set: only below our own first process.
    pub(crate) owns_machine: bool,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            listen: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: DEFAULT_PORT,
            state_directory: PathBuf::from("/run/e2b"),
            cgroup: None,
            owns_machine: false,
        }
    }
}

/// Why a command line was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum OptionsError {
    /// Neither the first process nor a known role.
    #[error("unknown role {0:?}")]
    UnknownRole(String),
    /// An option that does not exist.
    #[error("unknown option {0:?}")]
    UnknownOption(String),
    /// An option at the end without its value.
    #[error("option {0} needs a value")]
    MissingValue(String),
    /// A value that does not parse.
    #[error("option {option} does not accept {value:?}")]
    BadValue {
        /// The option's name.
        option: String,
        /// The refused value.
        value: String,
    },
}

/// Chooses the role from the argument vector and the process id.
pub(crate) fn parse(arguments: &[String], process_id: u32) -> Result<Role, OptionsError> {
    match arguments.get(1).map(String::as_str) {
        Some("daemon") => parse_daemon(&arguments[2..]).map(Role::Daemon),
        Some("keep") => parse_daemon(&arguments[2..]).map(Role::Keep),
        _ if process_id == 1 => Ok(Role::Init),
        other => Err(OptionsError::UnknownRole(other.unwrap_or_default().to_owned())),
    }
}

fn parse_daemon(words: &[String]) -> Result<DaemonOptions, OptionsError> {
    let mut options = DaemonOptions::default();
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or_else(|| OptionsError::MissingValue(option.clone()));
        match option.as_str() {
            "--listen" => options.listen = parse_value(option, value()?)?,
            "--port" => options.port = parse_value(option, value()?)?,
            "--state-directory" => options.state_directory = PathBuf::from(value()?),
            "--cgroup" => options.cgroup = Some(PathBuf::from(value()?)),
            _ => return Err(OptionsError::UnknownOption(option.clone())),
        }
    }
    Ok(options)
}

fn parse_value<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, OptionsError> {
    value.parse().map_err(|_| OptionsError::BadValue { option: option.to_owned(), value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn process_one_is_init_whatever_the_kernel_passed() {
        assert_eq!(parse(&words("/init quiet splash"), 1), Ok(Role::Init));
    }

    #[test]
    fn daemon_takes_its_options() {
        let Ok(Role::Daemon(options)) = parse(&words("aenv-guest daemon --listen 127.0.0.1 --port 0"), 7)
        else {
            panic!("expected the daemon role");
        };
        assert_eq!((options.listen.to_string().as_str(), options.port), ("127.0.0.1", 0));
    }

    #[test]
    fn bad_words_are_named() {
        assert_eq!(parse(&words("x"), 7), Err(OptionsError::UnknownRole(String::new())));
        assert_eq!(parse(&words("x daemon --speed"), 7), Err(OptionsError::UnknownOption("--speed".into())));
        assert_eq!(parse(&words("x daemon --port"), 7), Err(OptionsError::MissingValue("--port".into())));
        let bad = OptionsError::BadValue { option: "--port".into(), value: "99999".into() };
        assert_eq!(parse(&words("x daemon --port 99999"), 7), Err(bad));
    }
}

//! What a process starts with: variables, working directory. Nothing of the daemon's own environment leaks.

use std::path::PathBuf;

use super::messages::ProcessConfig;
use crate::connect::ConnectError;
use crate::state::{Daemon, Environment};
use crate::users::User;

const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of a new process. Later ones win: the user's, the host's, the request's.
pub(super) fn variables(
    daemon: &Daemon,
    user: &User,
    config: &ProcessConfig,
) -> Result<Environment, ConnectError> {
    let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
    let mut variables = Environment::from([
        ("PATH".to_owned(), path.unwrap_or_else(|| PATH_DEFAULT.to_owned())),
        ("HOME".to_owned(), user.home.to_string_lossy().into_owned()),
        ("USER".to_owned(), user.name.clone()),
        ("LOGNAME".to_owned(), user.name.clone()),
    ]);
    variables.extend(daemon.global_environment());
    for (name, value) in &config.envs {
        check_variable(name, value)?;
        variables.insert(name.clone(), value.clone());
    }
    Ok(variables)
}

/// What `execve` cannot carry is refused by name.
pub(crate) fn check_variable(name: &str, value: &str) -> Result<(), ConnectError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ConnectError::invalid_argument(format!(
            "environment variable name {name:?} is not possible"
        )));
    }
    if value.contains('\0') {
        return Err(ConnectError::invalid_argument(format!(
            "environment variable {name:?} contains a NUL byte"
        )));
    }
    Ok(())
}

/// The directory a process starts in. A missing default home falls back to `/`; a missing wish is an error.
pub(super) fn working_directory(
    daemon: &Daemon,
    user: &User,
    config: &ProcessConfig,
) -> Result<PathBuf, ConnectError> {
    let wish = config.cwd.as_deref().unwrap_or_default();
    if wish.contains('\0') {
        return Err(ConnectError::invalid_argument("cwd contains a NUL byte"));
    }
    let directory = daemon.resolve_path(wish, user);
    match std::fs::metadata(&directory) {
        Ok(metadata) if metadata.is_dir() => Ok(directory),
        Ok(_) => {
            Err(ConnectError::invalid_argument(format!("cwd '{}' is not a directory", directory.display())))
        }
        // Minimal images name homes that they do not have.
        Err(_) if wish.is_empty() && daemon.default_workdir().is_none() => Ok(PathBuf::from("/")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ConnectError::invalid_argument(format!("cwd '{}' does not exist", directory.display())))
        }
        Err(error) => Err(ConnectError::invalid_argument(format!("cwd '{}': {error}", directory.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_variables_are_refused() {
        check_variable("KEY", "a=b\nü").expect("values are free");
        for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
            check_variable(name, value).expect_err(name);
        }
    }
}

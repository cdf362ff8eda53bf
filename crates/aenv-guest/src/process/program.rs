//! What `execve` is given: where to look for the program, its words and variables. All memory is made before the child
//! exists; afterwards nothing here allocates or locks.

use std::cell::Cell;
use std::ffi::{CStr, CString, NulError};
use std::ptr;

use super::messages::ProcessConfig;
use crate::state::Environment;

/// Runs files that are no program and name no interpreter, as every shell would, and stands in for a missing bash.
const SHELL: &CStr = c"/bin/sh";
/// What all official clients run their commands in. Small images have none, but a shell that takes the same words.
const BASH: &str = "/bin/bash";

/// A program ready to be executed.
pub(super) struct Program {
    /// Where it may be, in order.
    candidates: Vec<CString>,
    arguments: Words,
    variables: Words,
    /// The words of the shell that runs the program as a script; the second is filled in when it is known.
    script: Vec<Cell<*const libc::c_char>>,
    is_bash: bool,
}

impl Program {
    /// Collects everything; words with a NUL byte cannot be passed.
    pub(super) fn new(config: &ProcessConfig, environment: &Environment) -> Result<Self, NulError> {
        let words = std::iter::once(&config.cmd).chain(&config.args);
        let arguments = Words::new(words.map(|word| CString::new(word.as_bytes())))?;
        let pairs = environment.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
        let rest = arguments.pointers.iter().skip(1).copied();
        let script = [SHELL.as_ptr(), ptr::null()].into_iter().chain(rest).map(Cell::new).collect();
        let candidates = find_candidates(&config.cmd, environment.get("PATH").map_or("", String::as_str));
        let candidates = candidates.into_iter().map(CString::new).collect::<Result<_, _>>()?;
        Ok(Self { candidates, variables: Words::new(pairs)?, arguments, script, is_bash: config.cmd == BASH })
    }

    /// Becomes the program. Returns only when that fails, with the error number.
    pub(super) fn execute(&self) -> i32 {
        let mut reason = libc::ENOENT;
        for candidate in &self.candidates {
            match self.execute_candidate(candidate) {
                // It may be in the next directory.
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => reason = libc::EACCES,
                other => return other,
            }
        }
        if self.is_bash && reason == libc::ENOENT {
            self.execute_stand_in();
        }
        reason
    }

    /// Returns when there is no other shell either.
    fn execute_stand_in(&self) {
        // Its own name first: a program of many names goes by the one that it is called.
        self.script[1].set(SHELL.as_ptr());
        // `Cell` has the layout of its content.
        execute(SHELL, self.script[1..].as_ptr().cast(), self.variables.pointers.as_ptr());
    }

    fn execute_candidate(&self, path: &CStr) -> i32 {
        let error = execute(path, self.arguments.pointers.as_ptr(), self.variables.pointers.as_ptr());
        if error != libc::ENOEXEC {
            return error;
        }
        self.script[1].set(path.as_ptr());
        // `Cell` has the layout of its content.
        execute(SHELL, self.script.as_ptr().cast(), self.variables.pointers.as_ptr())
    }
}

/// Words and the array of pointers to them that the kernel wants, with a null at the end.
struct Words {
    pointers: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

impl Words {
    fn new(words: impl Iterator<Item = Result<CString, NulError>>) -> Result<Self, NulError> {
        let owned = words.collect::<Result<Vec<_>, _>>()?;
        let pointers = owned.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }
}

/// A name with a slash is a path; any other is looked for in the directories of `PATH`.
fn find_candidates(command: &str, path: &str) -> Vec<String> {
    if command.contains('/') {
        return vec![command.to_owned()];
    }
    // An empty entry is the working directory.
    let join =
        |entry: &str| if entry.is_empty() { format!("./{command}") } else { format!("{entry}/{command}") };
    path.split(':').map(join).collect()
}

fn execute(path: &CStr, arguments: *const *const libc::c_char, variables: *const *const libc::c_char) -> i32 {
    // SAFETY: both arrays end with a null pointer, and all strings live as long as their owners, which our callers hold.
    unsafe { libc::execve(path.as_ptr(), arguments, variables) };
    nix::errno::Errno::last_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_and_paths_are_not() {
        assert_eq!(find_candidates("a", "/x:/y:"), ["/x/a", "/y/a", "./a"]);
        assert_eq!(find_candidates("./a", "/x"), ["./a"]);
        assert_eq!(find_candidates("a", ""), ["./a"]);
    }

    #[test]
    fn nul_bytes_are_refused() {
        let config = ProcessConfig { cmd: "a\0b".to_owned(), ..ProcessConfig::default() };
        assert!(Program::new(&config, &Environment::new()).is_err());
    }
}

//! What can go wrong in the file service, and the Connect error it becomes. Foreign errors are translated here, once.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::connect::{Code, ConnectError};
use crate::files::blocking::BlockingError;

/// Translates a failed system call on a path.
pub(super) fn from_io(error: &io::Error, path: &Path) -> ConnectError {
    let shown = path.display();
    let Some(errno) = error.raw_os_error().map(Errno::from_raw) else {
        let code = match error.kind() {
            io::ErrorKind::InvalidInput => Code::InvalidArgument,
            _ => Code::Internal,
        };
        return ConnectError::new(code, format!("'{shown}': {error}"));
    };
    let code = match errno {
        Errno::ENOENT => return missing(path),
        Errno::EEXIST => Code::AlreadyExists,
        Errno::ENOTDIR | Errno::EISDIR | Errno::EINVAL | Errno::ENAMETOOLONG | Errno::EXDEV => {
            Code::InvalidArgument
        }
        Errno::ELOOP | Errno::EBUSY | Errno::ENOTEMPTY | Errno::ETXTBSY => Code::FailedPrecondition,
        Errno::EACCES | Errno::EPERM | Errno::EROFS => Code::PermissionDenied,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => {
            Code::ResourceExhausted
        }
        _ => Code::Internal,
    };
    ConnectError::new(code, format!("'{shown}': {}", errno.desc()))
}

/// A path that names nothing.
pub(super) fn missing(path: &Path) -> ConnectError {
    ConnectError::not_found(format!("path '{}' does not exist", path.display()))
}

/// A path that names something else than a directory.
pub(super) fn not_a_directory(path: &Path) -> ConnectError {
    ConnectError::invalid_argument(format!("path '{}' is not a directory", path.display()))
}

impl From<BlockingError> for ConnectError {
    fn from(error: BlockingError) -> Self {
        let code = match error {
            BlockingError::Busy => Code::ResourceExhausted,
            BlockingError::Panicked => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

//! What can go wrong with a file request, and the HTTP answer it becomes. Foreign errors are translated here, once.
//!
//! `FileError`: `Invalid` 400 · `Unauthorised` 401 · `NotFound` 404 · `MethodNotAllowed` 405 · `NotAcceptable` 406 ·
//! `Idle` 408 · `Forbidden` 403 · `Failed` 500 · `Busy` 503 · `OutOfSpace` 507

use std::io;
use std::path::Path;

use hyper::header::{HeaderValue, CONNECTION};
use hyper::StatusCode;
use nix::errno::Errno;

use super::blocking::BlockingError;
use crate::http::{self, Response};
use crate::users::UserError;

/// A file request that was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The request cannot be served as it is, whoever asks.
    #[error("{0}")]
    Invalid(String),
    /// No right token, no right signature, or no such user.
    #[error("{0}")]
    Unauthorised(String),
    /// The kernel refuses the operation even to root.
    #[error("{0}")]
    Forbidden(String),
    /// The path names nothing.
    #[error("path '{0}' does not exist")]
    NotFound(String),
    /// The route exists, the method on it does not.
    #[error("method {0} is not allowed here")]
    MethodNotAllowed(String),
    /// The client accepts none of the encodings we can send.
    #[error("no acceptable encoding: offer gzip or identity in accept-encoding")]
    NotAcceptable,
    /// The client stopped sending.
    #[error("upload was idle for too long and has been given up")]
    Idle,
    /// The disk, the quota or the inode table is full.
    #[error("not enough space left for '{0}'")]
    OutOfSpace(String),
    /// All workers are taken, and stayed so.
    #[error("too many file operations at once; try again later")]
    Busy,
    /// The kernel failed in a way that has no better name.
    #[error("{0}")]
    Failed(String),
}

impl FileError {
    /// Translates a failed system call on a path.
    pub(crate) fn from_io(error: &io::Error, path: &Path) -> Self {
        let shown = path.display();
        let Some(errno) = error.raw_os_error().map(Errno::from_raw) else {
            return match error.kind() {
                io::ErrorKind::InvalidInput => {
                    Self::Invalid(format!("path '{shown}' is not usable: {error}"))
                }
                _ => Self::Failed(format!("'{shown}': {error}")),
            };
        };
        match errno {
            Errno::ENOENT => Self::NotFound(shown.to_string()),
            Errno::ENOSPC | Errno::EDQUOT => Self::OutOfSpace(shown.to_string()),
            Errno::EACCES | Errno::EPERM | Errno::EROFS => {
                Self::Forbidden(format!("'{shown}': {}", errno.desc()))
            }
            Errno::ENXIO | Errno::ENODEV => Self::special(path),
            Errno::EISDIR
            | Errno::ENOTDIR
            | Errno::ELOOP
            | Errno::ENAMETOOLONG
            | Errno::EINVAL
            | Errno::EAGAIN
            | Errno::EEXIST
            | Errno::EXDEV
            | Errno::EFBIG
            | Errno::ETXTBSY => Self::Invalid(format!("'{shown}': {}", errno.desc())),
            _ => Self::Failed(format!("'{shown}': {}", errno.desc())),
        }
    }

    /// A path that names a FIFO, socket or device: reading or writing one could block for ever.
    pub(crate) fn special(path: &Path) -> Self {
        Self::Invalid(format!("path '{}' is not a regular file", path.display()))
    }

    /// A path that names a directory.
    pub(crate) fn directory(path: &Path) -> Self {
        Self::Invalid(format!("path '{}' is a directory", path.display()))
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorised(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::Idle => StatusCode::REQUEST_TIMEOUT,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::OutOfSpace(_) => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    /// The answer the client sees.
    pub(crate) fn into_response(self) -> Response {
        let mut response = http::error(self.status(), self.to_string());
        if matches!(self, Self::Idle) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<UserError> for FileError {
    fn from(error: UserError) -> Self {
        Self::Unauthorised(error.to_string())
    }
}

impl From<BlockingError> for FileError {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::Busy => Self::Busy,
            BlockingError::Panicked => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_errors_become_the_statuses_of_the_contract() {
        let cases = [
            (libc::ENOENT, 404),
            (libc::ENOSPC, 507),
            (libc::EDQUOT, 507),
            (libc::EISDIR, 400),
            (libc::ENOTDIR, 400),
            (libc::ENXIO, 400),
            (libc::ELOOP, 400),
            (libc::EROFS, 403),
            (libc::EIO, 500),
        ];
        for (errno, status) in cases {
            let error = FileError::from_io(&io::Error::from_raw_os_error(errno), Path::new("/x"));
            assert_eq!(error.status().as_u16(), status, "errno {errno}");
        }
    }

    #[test]
    fn a_missing_path_is_named_as_the_contract_words_it() {
        let error = FileError::from_io(&io::Error::from_raw_os_error(libc::ENOENT), Path::new("/a b"));
        assert_eq!(error.to_string(), "path '/a b' does not exist");
    }
}

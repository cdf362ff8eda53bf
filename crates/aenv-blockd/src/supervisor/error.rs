//! Why a supervisor could not do its work.

use std::io;
use std::path::{Path, PathBuf};

use crate::fuse::NegotiationError;
use crate::ublk::UblkError;

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SupervisorError {
    /// A file or directory failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The record of a mount is damaged.
    #[error("{} is damaged ({reason}): unmount what it was for by hand and remove it", .path.display())]
    BadRecord {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else is mounted where the images should appear.
    #[error("something else is mounted on {}; choose another directory or unmount it", .0.display())]
    ForeignMount(PathBuf),
    /// Another program holds the state directory and does not answer.
    #[error("{} is locked by a program that does not answer on {}", .state.display(), .control.display())]
    Locked {
        /// The state directory.
        state: PathBuf,
        /// The control socket.
        control: PathBuf,
    },
    /// The kernel does not speak our protocol.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// Disks shall be block devices, and cannot.
    #[error("this host cannot show disks by ublk; --exporter fuse needs no driver")]
    NoBlockDevices(#[source] UblkError),
    /// The first server refused to begin; it said why.
    #[error("the server could not begin")]
    Refused,
}

/// Names what failed on which path.
pub(super) trait Supply<T> {
    fn supply(self, action: &'static str, path: &Path) -> Result<T, SupervisorError>;
}

impl<T> Supply<T> for io::Result<T> {
    fn supply(self, action: &'static str, path: &Path) -> Result<T, SupervisorError> {
        self.map_err(|source| SupervisorError::File { action, path: path.to_owned(), source })
    }
}

//! Why the bytes of a layer cannot be had. Messages name the source without query strings or secrets.

use std::io;
use std::path::PathBuf;

/// Why a source cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The reference itself makes no sense.
    #[error("the layer reference is invalid: {reason}")]
    InvalidReference {
        /// What is wrong with it.
        reason: String,
    },
    /// A file of this host failed.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> Self {
        let kind = match &error {
            SourceError::InvalidReference { .. } => io::ErrorKind::InvalidInput,
            SourceError::File { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}

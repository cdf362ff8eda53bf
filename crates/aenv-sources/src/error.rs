//! Why the bytes of a layer cannot be had. Messages name the source without query strings or secrets.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;

/// Why a source cannot be opened or read. Clones are cheap: readers that waited for one fetch share its error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    /// The reference itself makes no sense.
    #[error("the layer reference is invalid: {reason}")]
    InvalidReference {
        /// What is wrong with it.
        reason: String,
    },
    /// A file of this host failed.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread {
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Another process holds the cache directory.
    #[error("the cache directory {} is in use by another process", path.display())]
    CacheInUse {
        /// The directory.
        path: PathBuf,
    },
    /// A credential file cannot be understood.
    #[error("the credential file {} is unusable: {reason}", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The remote knows us, or does not, and says no.
    #[error("{place} refuses access with status {status}; check the credentials")]
    Denied {
        /// The remote.
        place: String,
        /// The HTTP status.
        status: u16,
    },
    /// The remote has no such blob.
    #[error("{place} does not exist")]
    NotFound {
        /// The remote.
        place: String,
    },
    /// The remote did not answer in time, however often it was asked.
    #[error("{place} gave no bytes within {} s; at last: {cause}", waited.as_secs_f32())]
    Unavailable {
        /// The remote.
        place: String,
        /// How long was waited.
        waited: Duration,
        /// What the last attempt ended with.
        cause: String,
    },
    /// The remote answered, but with something that cannot be right.
    #[error("{place} answers wrongly: {fault}")]
    Misbehaved {
        /// The remote.
        place: String,
        /// What was wrong.
        fault: Misbehaviour,
    },
    /// The remote sends us to a place where nobody is sent.
    #[error("{place} is not contacted: {reason}")]
    Forbidden {
        /// Where we were sent.
        place: String,
        /// Why we do not go.
        reason: Prohibition,
    },
    /// The whole blob was fetched, twice, and is not what its digest says.
    #[error("what is delivered as {digest} has another digest")]
    Tainted {
        /// The digest that was asked for.
        digest: Digest,
    },
}

/// How a remote can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// A status that has no meaning here.
    #[error("status {0}")]
    Status(u16),
    /// The blob has another size than the reference says.
    #[error("the blob has {found} bytes instead of {expected}")]
    Size {
        /// The size in the reference.
        expected: u64,
        /// The size that the remote gives.
        found: u64,
    },
    /// A partial answer that does not say which part it is, or another part than asked for.
    #[error("the answer is not the range that was asked for")]
    Range,
    /// The remote ignores ranges, and the wanted bytes are too far from the start to skip what is before them.
    #[error("it ignores ranges")]
    RangeIgnored,
    /// More bytes came than the range has.
    #[error("the body is longer than the range")]
    LongBody,
    /// The body is encoded in a way that was not asked for.
    #[error("the body is encoded")]
    Encoded,
    /// A challenge for credentials that cannot be understood, or asks for a scheme that we do not speak.
    #[error("the challenge for credentials is not understood")]
    Challenge,
    /// The answer of the token service holds no usable token.
    #[error("the token service gives no usable token")]
    Token,
    /// A redirect without a usable address, or one where none belongs.
    #[error("the redirect is not usable")]
    Redirect,
    /// More redirects than anyone needs.
    #[error("it redirects too often")]
    TooManyRedirects,
}

/// Why a place is not contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Prohibition {
    /// The source is encrypted, the place is not.
    #[error("an encrypted source must not lead to an unencrypted one")]
    Unencrypted,
    /// The host has only addresses that belong to this machine, its link, or its cloud's metadata service.
    #[error("the address is reserved for this host or its cloud")]
    Address,
}

impl SourceError {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::InvalidReference { reason: reason.into() }
    }

    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn thread(source: io::Error) -> Self {
        Self::Thread { source: Arc::new(source) }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::InvalidReference { .. } | Self::Credentials { .. } => io::ErrorKind::InvalidInput,
            Self::File { source, .. } | Self::Thread { source } => source.kind(),
            Self::CacheInUse { .. } => io::ErrorKind::WouldBlock,
            Self::Denied { .. } | Self::Forbidden { .. } => io::ErrorKind::PermissionDenied,
            Self::NotFound { .. } => io::ErrorKind::NotFound,
            Self::Unavailable { .. } => io::ErrorKind::TimedOut,
            Self::Misbehaved { .. } | Self::Tainted { .. } => io::ErrorKind::InvalidData,
        }
    }
}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> Self {
        io::Error::new(error.kind(), error)
    }
}

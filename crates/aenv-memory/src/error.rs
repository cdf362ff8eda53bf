//! What can go wrong while memory is taken.

use std::io;

use aenv_layers::LayerError;

/// Why memory could not be taken. The process that it belongs to is as before.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The process has ended, or its number belongs to another one now.
    #[error("process {pid} has ended")]
    ProcessGone {
        /// The number of the process.
        pid: i32,
    },
    /// The range is not whole pages.
    #[error("the range of {length} bytes at {address:#x} is not whole pages")]
    Misaligned {
        /// The first byte.
        address: u64,
        /// How many bytes.
        length: u64,
    },
    /// The range is not memory that belongs to the process alone.
    #[error("process {pid} has no private writable memory at {address:#x}")]
    NotPrivateMemory {
        /// The number of the process.
        pid: i32,
        /// The first byte that is something else.
        address: u64,
    },
    /// The kernel does not say which pages were written since the last capture.
    #[error("writes to the memory of process {pid} are not tracked")]
    NotTracked {
        /// The number of the process.
        pid: i32,
    },
    /// A list of the kernel about the process could not be read.
    #[error("cannot read {what} of process {pid}")]
    Inspect {
        /// The number of the process.
        pid: i32,
        /// Which list.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Bytes of the process could not be read.
    #[error("cannot read the memory of process {pid} at {address:#x}")]
    Read {
        /// The number of the process.
        pid: i32,
        /// The first byte that was not read.
        address: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file of the layer could not be created, read back or made durable.
    #[error("cannot {operation} {path}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The layer could not be written, or a layer below it not be read.
    #[error(transparent)]
    Layer(#[from] LayerError),
}

impl MemoryError {
    /// The error of the system that stands behind this one, if there is one.
    pub fn os_error(&self) -> Option<&io::Error> {
        match self {
            Self::Inspect { source, .. } | Self::Read { source, .. } | Self::File { source, .. } => {
                Some(source)
            }
            Self::Layer(LayerError::Io { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// Whether the caller's watcher ended the work.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Layer(LayerError::Cancelled { .. }))
    }
}

//! Why a call failed, and which Python exception says so. The only place that knows both.

use std::io;
use std::path::{Path, PathBuf};

use aenv_layers::LayerError;
use aenv_memory::MemoryError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::PyErr;

create_exception!(agentenv_core, CoreError, PyException, "Root of the errors of this module.");
create_exception!(agentenv_core, CorruptLayer, CoreError, "The bytes form no valid layer.");
create_exception!(agentenv_core, UnsupportedLayer, CoreError, "A part of the format is not read here.");
create_exception!(agentenv_core, LayerTooLarge, CoreError, "A number is above what we are willing to hold.");
create_exception!(agentenv_core, InvalidRequest, CoreError, "The call asks for what cannot be.");
create_exception!(agentenv_core, FileFailed, CoreError, "The system refused something on a file.");
create_exception!(agentenv_core, FileMissing, FileFailed, "A file does not exist.");
create_exception!(agentenv_core, FileExists, FileFailed, "The file to be made is there already.");
create_exception!(agentenv_core, NoSpace, FileFailed, "The file system or the quota is full.");
create_exception!(agentenv_core, MemoryFailed, CoreError, "The memory of a process could not be taken.");
create_exception!(agentenv_core, ProcessEnded, MemoryFailed, "The process has ended.");
create_exception!(agentenv_core, Cancelled, CoreError, "The work was ended by its token.");
create_exception!(agentenv_core, InternalError, CoreError, "A rule of ours was broken.");

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something about a layer.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The system refused something on a file that is no layer, or not yet one.
    #[error("cannot {attempt} {}: {}", shown(path), said(source))]
    File {
        /// What was tried.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The memory of a process could not be taken.
    #[error(transparent)]
    Memory(MemoryError),
    /// The call asks for what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The caller's token ended the work.
    #[error("the work was cancelled")]
    Cancelled,
    /// A Python function that we called has raised.
    #[error("the progress function raised")]
    Raised(PyErr),
    /// The code met a state that it holds to be impossible.
    #[error("internal error: {0}")]
    Panic(String),
}

impl Failure {
    /// Turns an error of the system on `path` into a failure; for `map_err`.
    pub(crate) fn on<'a, E: Into<io::Error>>(
        attempt: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(E) -> Self + use<'a, E> {
        move |source| Self::File { attempt, path: path.to_owned(), source: source.into() }
    }
}

/// What the system said, without its number.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// A path for people. A name that somebody else chose must not steer their terminal.
pub(crate) fn shown(path: &Path) -> String {
    path.display()
        .to_string()
        .chars()
        .map(|character| if character.is_control() { '?' } else { character })
        .collect()
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Layer(error) => of_layer(&error),
            Failure::File { ref source, .. } => of_file(source, failure.to_string()),
            Failure::Memory(error) => of_memory(&error),
            Failure::Invalid(message) => InvalidRequest::new_err(message),
            Failure::Cancelled => Cancelled::new_err(failure.to_string()),
            Failure::Raised(error) => error,
            Failure::Panic(_) => InternalError::new_err(failure.to_string()),
        }
    }
}

fn of_layer(error: &LayerError) -> PyErr {
    let message = error.to_string();
    match error {
        LayerError::Corrupt { .. } => CorruptLayer::new_err(message),
        LayerError::Unsupported { .. } => UnsupportedLayer::new_err(message),
        LayerError::TooLarge { .. } => LayerTooLarge::new_err(message),
        LayerError::Cancelled { .. } => Cancelled::new_err(message),
        LayerError::Io { source, .. } => of_file(source, format!("{message}: {}", said(source))),
        LayerError::OutOfRange { .. }
        | LayerError::Misaligned { .. }
        | LayerError::Shrinking { .. }
        | LayerError::Frozen { .. } => InvalidRequest::new_err(message),
        LayerError::OutOfOrder { .. } | LayerError::OutOfTurn { .. } => InternalError::new_err(message),
        LayerError::Failed { .. } => FileFailed::new_err(message),
    }
}

fn of_memory(error: &MemoryError) -> PyErr {
    let message = match error.os_error() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    match error {
        MemoryError::ProcessGone { .. } => ProcessEnded::new_err(message),
        MemoryError::Misaligned { .. } => InvalidRequest::new_err(message),
        _ => MemoryFailed::new_err(message),
    }
}

fn of_file(source: &io::Error, message: String) -> PyErr {
    match source.kind() {
        io::ErrorKind::NotFound => FileMissing::new_err(message),
        io::ErrorKind::AlreadyExists => FileExists::new_err(message),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NoSpace::new_err(message),
        _ => FileFailed::new_err(message),
    }
}

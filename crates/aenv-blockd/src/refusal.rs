//! Why a verb was not done, in the words of the control protocol: a kind for programs, a code, a sentence for people.

use std::io;
use std::path::{Path, PathBuf};

use aenv_layers::LayerError;
use aenv_sources::SourceError;

use crate::export::NotShown;
use crate::image::ImageName;
use crate::log;

/// The kinds that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    NotFound,
    Conflict,
    Exhausted,
    Unavailable,
    Corrupt,
    Bug,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Exhausted => "exhausted",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Bug => "bug",
        }
    }
}

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request is not one.
    #[error("the request is not understood: {0}")]
    Malformed(String),
    /// An argument has no meaning.
    #[error("{0}")]
    Argument(String),
    /// Another version of the protocol.
    #[error("version {0} of the protocol is not spoken here; version 1 is")]
    Version(u64),
    /// No image has this name.
    #[error("no image is called {0}")]
    UnknownImage(ImageName),
    /// No seal has this name.
    #[error("image {image} knows no seal {seal_id:?}")]
    UnknownSeal {
        /// The image.
        image: ImageName,
        /// The seal.
        seal_id: String,
    },
    /// A file that a request names is not there.
    #[error("{} does not exist", .0.display())]
    MissingFile(PathBuf),
    /// The name is taken by an image with other arguments.
    #[error("image {0} is open with other arguments")]
    OtherArguments(ImageName),
    /// Processes have the image open.
    #[error("image {image} is in use by {users} openers")]
    ImageInUse {
        /// The image.
        image: ImageName,
        /// How many.
        users: usize,
    },
    /// Another image or program has the writable layer open.
    #[error("the writable layer in {} is open elsewhere", .0.display())]
    DirectoryInUse(PathBuf),
    /// Something is already at a path that should be new.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The image is read-only.
    #[error("image {0} has no writable layer")]
    NotWritable(ImageName),
    /// Images are open.
    #[error("{0} images are open")]
    ImagesOpen(usize),
    /// The image consists of too many layers.
    #[error("image {image} would have {layers} layers; {limit} is the limit")]
    TooManyLayers {
        /// The image.
        image: ImageName,
        /// How many layers.
        layers: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Too much is asked at once.
    #[error("{0}")]
    TooMany(&'static str),
    /// The table cannot be written.
    #[error("the device table cannot be written: {0}")]
    TableUnwritable(String),
    /// An earlier failure left it unknown what the table says.
    #[error("the device table takes no more changes since a write to it failed; restart the program")]
    TableFailed,
    /// An image of the table whose layers are gone or damaged.
    #[error("image {image} cannot be read: {reason}")]
    Unreadable {
        /// The image.
        image: ImageName,
        /// Why.
        reason: String,
    },
    /// The image cannot be shown to processes.
    #[error("image {image} cannot be shown: {reason}")]
    NotShown {
        /// The image.
        image: ImageName,
        /// Why.
        reason: String,
    },
    /// The image is shown in a way that has one size.
    #[error("image {0} is a block device of fixed size: close it, and open it with the new size")]
    FixedSize(ImageName),
    /// A layer cannot be fetched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A layer failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
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
    /// Work in the background failed; its own words.
    #[error("{sentence}")]
    Background {
        /// Kind of the failure.
        kind: Kind,
        /// Its code.
        code: &'static str,
        /// Its sentence.
        sentence: String,
    },
    /// A fault of this program.
    #[error("a fault of the program: {0}")]
    Bug(String),
}

impl Refusal {
    /// A system call on a path failed.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::MissingFile(path),
            _ => Self::File { action, path, source },
        }
    }

    pub(crate) fn argument(sentence: impl Into<String>) -> Self {
        Self::Argument(sentence.into())
    }

    pub(crate) fn not_shown(image: ImageName, error: &NotShown) -> Self {
        Self::NotShown { image, reason: error.to_string() }
    }

    /// The same refusal for one more asker.
    pub(crate) fn copy(&self) -> Self {
        let (kind, code) = self.classify();
        Self::Background { kind, code, sentence: self.sentence() }
    }

    /// What people read.
    pub(crate) fn sentence(&self) -> String {
        log::chain(self)
    }

    /// What programs read.
    pub(crate) fn classify(&self) -> (Kind, &'static str) {
        match self {
            Self::Malformed(_) => (Kind::Invalid, "malformed_request"),
            Self::Argument(_) => (Kind::Invalid, "invalid_argument"),
            Self::Version(_) => (Kind::Invalid, "unknown_version"),
            Self::UnknownImage(_) => (Kind::NotFound, "unknown_image"),
            Self::UnknownSeal { .. } => (Kind::NotFound, "unknown_seal"),
            Self::MissingFile(_) => (Kind::NotFound, "missing_file"),
            Self::OtherArguments(_) => (Kind::Conflict, "other_arguments"),
            Self::ImageInUse { .. } => (Kind::Conflict, "image_in_use"),
            Self::DirectoryInUse(_) => (Kind::Conflict, "directory_in_use"),
            Self::Exists(_) => (Kind::Conflict, "path_exists"),
            Self::NotWritable(_) => (Kind::Conflict, "not_writable"),
            Self::ImagesOpen(_) => (Kind::Conflict, "images_open"),
            Self::TooManyLayers { .. } => (Kind::Exhausted, "too_many_layers"),
            Self::TooMany(_) => (Kind::Exhausted, "too_many"),
            Self::TableUnwritable(_) => (Kind::Unavailable, "table_unwritable"),
            Self::TableFailed => (Kind::Unavailable, "table_failed"),
            Self::Unreadable { .. } => (Kind::Unavailable, "image_unreadable"),
            Self::NotShown { .. } => (Kind::Unavailable, "image_not_shown"),
            Self::FixedSize(_) => (Kind::Conflict, "fixed_size"),
            Self::Source(SourceError::InvalidReference { .. }) => (Kind::Invalid, "invalid_argument"),
            Self::Source(_) => (Kind::Unavailable, "source_unavailable"),
            Self::Layer(error) => classify_layer(error),
            Self::File { source, .. } => classify_system(source),
            Self::Background { kind, code, .. } => (*kind, code),
            Self::Bug(_) => (Kind::Bug, "bug"),
        }
    }
}

fn classify_layer(error: &LayerError) -> (Kind, &'static str) {
    match error {
        LayerError::Corrupt { .. } => (Kind::Corrupt, "layer_corrupt"),
        LayerError::Unsupported { .. } => (Kind::Invalid, "layer_unsupported"),
        LayerError::TooLarge { .. } => (Kind::Exhausted, "layer_too_large"),
        LayerError::Shrinking { .. } => (Kind::Invalid, "cannot_shrink"),
        LayerError::OutOfRange { .. } | LayerError::Misaligned { .. } => (Kind::Invalid, "invalid_argument"),
        LayerError::Failed { .. } => (Kind::Unavailable, "layer_failed"),
        LayerError::Io { source, .. } => classify_system(source),
        LayerError::Frozen { .. }
        | LayerError::OutOfTurn { .. }
        | LayerError::OutOfOrder { .. }
        | LayerError::Cancelled { .. } => (Kind::Bug, "bug"),
    }
}

fn classify_system(error: &io::Error) -> (Kind, &'static str) {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => (Kind::Exhausted, "no_space"),
        Some(libc::EMFILE | libc::ENFILE) => (Kind::Exhausted, "too_many_files"),
        Some(libc::ENOENT) => (Kind::NotFound, "missing_file"),
        Some(libc::EEXIST) => (Kind::Conflict, "path_exists"),
        _ => (Kind::Unavailable, "io_failed"),
    }
}

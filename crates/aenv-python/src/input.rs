//! Files to read. Whoever named them may be hostile: only regular files are opened, and nothing waits.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aenv_layers::{Limits, LocalFile, ReadAt, SealedLayer, Stack, Wrapping, MAX_LAYERS};
use rustix::fs::{fadvise, Advice, OFlags};

use crate::failure::{shown, Failure};

/// Bytes that are read at a time; a token is looked at between two of them.
pub(crate) const COPY_SIZE: usize = 1 << 20;

/// An open regular file.
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    pub(crate) file: fs::File,
    pub(crate) length: u64,
}

impl Input {
    /// Opens a file that will be read from front to back.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        // A pipe without a writer would hold an ordinary open for ever.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::File::options()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(Failure::on("open", path))?;
        let metadata = file.metadata().map_err(Failure::on("look at", path))?;
        if !metadata.is_file() {
            return Err(Failure::Invalid(format!("{} is no regular file", shown(path))));
        }
        // Only speed is lost where this is refused.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Self { path: path.to_owned(), file, length: metadata.len() })
    }

    /// What errors call the layer in the file.
    pub(crate) fn name(&self) -> String {
        shown(&self.path)
    }

    /// The bytes of the file; reads share the descriptor.
    pub(crate) fn source(&self) -> Result<Arc<dyn ReadAt>, Failure> {
        let file = self.file.try_clone().map_err(Failure::on("open", &self.path))?;
        Ok(Arc::new(LocalFile::from(file)))
    }

    /// The plain layer in the file, and what it is wrapped in.
    pub(crate) fn unwrapped(&self) -> Result<(Wrapping, Arc<dyn ReadAt>), Failure> {
        Ok(aenv_layers::unwrap_layer(&self.name(), self.source()?, &Limits::default())?)
    }

    /// The layer in the file.
    pub(crate) fn layer(&self) -> Result<SealedLayer, Failure> {
        Ok(SealedLayer::open(&self.name(), self.source()?, &Limits::default())?)
    }
}

/// Opens the layers of a disk, the lowest first.
pub(crate) fn open_stack(paths: &[PathBuf]) -> Result<Stack, Failure> {
    if paths.is_empty() {
        return Err(Failure::Invalid("no layer was named".to_owned()));
    }
    if paths.len() > MAX_LAYERS {
        return Err(Failure::Invalid(format!("{} layers are more than {MAX_LAYERS}", paths.len())));
    }
    let layers = paths
        .iter()
        .map(|path| Ok(Arc::new(Input::open(path)?.layer()?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(Stack::new("stack", layers)?)
}

/// Calls `each` with the bytes of a source, a MiB at a time.
pub(crate) fn read_through(
    source: &dyn ReadAt,
    length: u64,
    path: &Path,
    mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; COPY_SIZE.min(usize::try_from(length).unwrap_or(COPY_SIZE))];
    let mut at = 0;
    while at < length {
        let wanted = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
        let count = source.read_at(at, &mut buffer[..wanted]).map_err(|error| of_read(error, path))?;
        if count == 0 {
            return Err(of_read(io::ErrorKind::UnexpectedEof.into(), path));
        }
        each(&buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// A damaged block of a container comes out as what it is.
fn of_read(error: io::Error, path: &Path) -> Failure {
    match error.downcast() {
        Ok(error) => Failure::Layer(error),
        Err(error) => Failure::on("read", path)(error),
    }
}

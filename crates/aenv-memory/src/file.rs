//! The file of a memory layer: whole and, when asked, durable, or not there at all.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use aenv_layers::{FileSink, LayerError, LayerId, LocalFile, NewSealed, Sink};
use sha2::{Digest as _, Sha256};

use crate::copy::{copy, Base, Source, Watcher};
use crate::error::MemoryError;
use crate::runs::Pages;

/// SHA-256 of a file.
pub type Digest = [u8; 32];

/// What a new layer says about itself, and where its file goes.
#[derive(Clone, Copy, Debug)]
pub struct NewLayerFile<'a> {
    /// The file, which must not exist.
    pub path: &'a Path,
    /// Its identifier.
    pub id: LayerId,
    /// The identifier of the layer below.
    pub parent: LayerId,
    /// Whether to compute the digest while writing. Without, writing takes less time.
    pub is_hashed: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerFile {
    /// Bytes of the file.
    pub length: u64,
    /// Bytes of memory in it.
    pub data_bytes: u64,
    /// The digest, if it was asked for.
    pub digest: Option<Digest>,
}

/// Writes pages of a process as a layer. The file is removed when that fails. It is not durable yet.
pub fn write_layer(
    source: Source<'_>,
    pages: &Pages,
    base: Base<'_>,
    new: NewLayerFile<'_>,
    watcher: Watcher<'_>,
) -> Result<LayerFile, MemoryError> {
    let file = LocalFile::create(new.path).map_err(|error| failed("create", new.path, error))?;
    write_into(file, source, pages, base, new, watcher).inspect_err(|_| {
        // The error that is under way says more than one about the file that is left.
        let _ = fs::remove_file(new.path);
    })
}

fn write_into(
    file: LocalFile,
    source: Source<'_>,
    pages: &Pages,
    base: Base<'_>,
    new: NewLayerFile<'_>,
    watcher: Watcher<'_>,
) -> Result<LayerFile, MemoryError> {
    let inner = FileSink::new(&new.path.to_string_lossy(), Arc::new(file), 0);
    let mut sink = HashingSink { inner, digest: new.is_hashed.then(Sha256::new) };
    let header = NewSealed {
        id: new.id,
        parent: new.parent,
        virtual_size: source.region.length(),
        ..NewSealed::default()
    };
    let summary = copy(source, pages, base, header, &mut sink, watcher)?;
    let digest = sink.digest.map(|digest| digest.finalize().into());
    Ok(LayerFile { length: summary.length, data_bytes: summary.data_bytes, digest })
}

/// Makes a file and its name durable, and returns its digest if asked to.
pub fn make_durable(
    path: &Path,
    is_hashed: bool,
    watcher: Watcher<'_>,
) -> Result<Option<Digest>, MemoryError> {
    let file = File::open(path).map_err(|error| failed("open", path, error))?;
    let digest = if is_hashed { Some(hash(path, &file, watcher)?) } else { None };
    file.sync_all().map_err(|error| failed("write out", path, error))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| failed("write out", directory, error))?;
    Ok(digest)
}

fn hash(path: &Path, mut file: &File, watcher: Watcher<'_>) -> Result<Digest, MemoryError> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(count) => {
                digest.update(&buffer[..count]);
                if watcher(count as u64).is_break() {
                    return Err(LayerError::Cancelled { layer: Arc::from(path.to_string_lossy()) }.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read back", path, error)),
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> MemoryError {
    MemoryError::File { operation, path: path.display().to_string(), source }
}

/// A file that is hashed on its way, if anybody wants that.
struct HashingSink {
    inner: FileSink,
    digest: Option<Sha256>,
}

impl Sink for HashingSink {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.inner.append(bytes)
    }
}

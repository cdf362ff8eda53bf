//! Turns references into open sources. One factory per process: it owns what sources share.

use std::path::Path;
use std::sync::Arc;

use aenv_layers::{LocalFile, ReadAt};

use crate::error::SourceError;
use crate::reference::LayerReference;

/// What all sources of a process share.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SourceOptions {}

/// Opens sources.
pub struct SourceFactory {
    _options: SourceOptions,
}

impl SourceFactory {
    /// Prepares what sources share.
    pub fn new(options: SourceOptions) -> Result<Self, SourceError> {
        Ok(Self { _options: options })
    }

    /// Opens a source. Opening the same reference again shares everything with the first.
    pub fn open(&self, reference: &LayerReference) -> Result<Arc<dyn ReadAt>, SourceError> {
        match reference {
            LayerReference::File { path } => open_file(path),
            LayerReference::Registry { .. } | LayerReference::Object { .. } => {
                Err(SourceError::InvalidReference { reason: "remote layers are not read yet".to_owned() })
            }
        }
    }
}

fn open_file(path: &Path) -> Result<Arc<dyn ReadAt>, SourceError> {
    let failed = |source| SourceError::File { path: path.to_owned(), source };
    if !path.is_absolute() {
        return Err(SourceError::InvalidReference { reason: format!("{} is not absolute", path.display()) });
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::ErrorKind::InvalidInput.into()));
    }
    Ok(Arc::new(LocalFile::from(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer");
        std::fs::write(&path, b"0123456789").unwrap();
        let factory = SourceFactory::new(SourceOptions::default()).unwrap();
        let source = factory.open(&LayerReference::File { path }).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(source.read_at(3, &mut buffer).unwrap(), 4);
        assert_eq!((&buffer, source.length().unwrap()), (b"3456", 10));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let factory = SourceFactory::new(SourceOptions::default()).unwrap();
        for path in [directory.path().to_owned(), directory.path().join("absent"), "relative".into()] {
            assert!(factory.open(&LayerReference::File { path: path.clone() }).is_err(), "{path:?}");
        }
    }
}

//! What a layer may be wrapped in: compression, an archive, both.

use std::sync::Arc;

use crate::error::{Damage, LayerError};
use crate::limits::Limits;
use crate::storage::{File, ReadAt, SourceHandle, Window};
use crate::tar::{find_member, TarWriter};
use crate::writer::{FileSink, LayerSummary, Sink};
use crate::zfile::{ZfileOptions, ZfileReader, ZfileWriter};
use crate::{lsmt, zfile};

/// Strips archive and compression off: the result is the bytes of a plain layer.
pub fn strip_wrapping(
    name: &str,
    source: Arc<dyn ReadAt>,
    limits: &Limits,
) -> Result<Arc<dyn ReadAt>, LayerError> {
    Ok(unwrap_layer(name, source, limits)?.1)
}

/// Strips archive and compression off, and says what they were.
pub fn unwrap_layer(
    name: &str,
    source: Arc<dyn ReadAt>,
    limits: &Limits,
) -> Result<(Wrapping, Arc<dyn ReadAt>), LayerError> {
    let member = find_member(name, Arc::clone(&source))?;
    let mut wrapping = Wrapping { compression: None, archive: member.is_some() };
    let source = match member {
        Some((offset, length)) => Arc::new(Window::new(source, offset, length)),
        None => source,
    };
    let handle = SourceHandle::new(Arc::from(name), source);
    let mut magic = [0; 8];
    handle.read_exact(0, &mut magic)?;
    match magic {
        lsmt::MAGIC => Ok((wrapping, handle.into_source())),
        zfile::MAGIC => {
            let reader = ZfileReader::open(name, handle.into_source(), limits)?;
            wrapping.compression = Some(reader.options());
            Ok((wrapping, Arc::new(reader)))
        }
        _ => Err(handle.damaged(0, Damage::UnknownFormat)),
    }
}

/// How a layer leaves this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrapping {
    /// Compress it.
    pub compression: Option<ZfileOptions>,
    /// Pack it into an archive of one member, as registries expect.
    pub archive: bool,
}

/// Lets `write` write a layer into a file through the wrapping, and makes the file durable. The file must be empty.
pub fn export(
    name: &str,
    file: Arc<dyn File>,
    wrapping: Wrapping,
    write: impl FnOnce(&mut dyn Sink) -> Result<LayerSummary, LayerError>,
) -> Result<LayerSummary, LayerError> {
    let (archive, mut sink) = if wrapping.archive {
        let (archive, sink) = TarWriter::begin(name, file)?;
        (Some(archive), sink)
    } else {
        (None, FileSink::new(name, file, 0))
    };
    let summary = match wrapping.compression {
        None => write(&mut sink)?,
        Some(options) => {
            let mut compressed = ZfileWriter::new(options, sink)?;
            let summary = write(&mut compressed)?;
            sink = compressed.finish()?;
            summary
        }
    };
    if let Some(archive) = archive {
        archive.finish(sink.length())?;
    }
    sink.sync()?;
    Ok(summary)
}

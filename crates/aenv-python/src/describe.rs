//! What a layer says about itself.

use std::path::PathBuf;

use aenv_layers::{Compression, LayerId, SealedLayer, ZfileOptions, SECTOR_SIZE};
use pyo3::prelude::*;

use crate::detached::run;
use crate::failure::Failure;
use crate::input::Input;
use crate::watch::Watch;

/// What a sealed layer says about itself. All of it was checked against the file, but nothing proves who wrote it.
#[pyclass(frozen, eq, hash, get_all, module = "agentenv_core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerDescription {
    /// Bytes of the file.
    file_bytes: u64,
    /// Whether the layer is packed into an archive.
    is_archive: bool,
    /// `lz4`, `zstd`, or nothing.
    compression: Option<&'static str>,
    /// Bytes that are compressed at a time, when they are.
    block_bytes: Option<u32>,
    /// Whether blocks have checksums; a plain layer has none.
    has_checksums: bool,
    /// The identifier that it carries.
    layer_id: Option<String>,
    /// The identifier of the layer that it was made on.
    parent_id: Option<String>,
    /// Free text of whoever made it.
    tag: Vec<u8>,
    /// Size of the disk; nothing when the layer below decides.
    virtual_size_bytes: Option<u64>,
    /// Bytes of the layer without archive and compression.
    pub(crate) layer_bytes: u64,
    /// Entries of the index.
    entries: u64,
    /// Bytes of the disk that the layer holds.
    data_bytes: u64,
    /// Bytes of the disk that the layer declares to be zeros.
    zeroed_bytes: u64,
}

/// Return what a sealed layer says about itself. Reads its headers and its index.
#[pyfunction]
pub(crate) fn inspect(py: Python<'_>, path: PathBuf) -> PyResult<LayerDescription> {
    run(py, Watch::new(None, None), move |_| describe(&Input::open(&path)?))
}

/// Opens a layer and says what it is.
pub(crate) fn describe(input: &Input) -> Result<LayerDescription, Failure> {
    let (wrapping, source) = input.unwrapped()?;
    let layer_bytes = source.length().map_err(Failure::on("look at", &input.path))?;
    let layer = SealedLayer::open(&input.name(), source, &aenv_layers::Limits::default())?;
    let bytes_of = |is_zeroed| -> u64 {
        let chosen = layer.entries().iter().filter(|entry| entry.is_zeroed() == is_zeroed);
        chosen.map(|entry| entry.length()).sum::<u64>() * SECTOR_SIZE
    };
    Ok(LayerDescription {
        file_bytes: input.length,
        is_archive: wrapping.archive,
        compression: wrapping.compression.map(|options| name_of(options.compression)),
        block_bytes: wrapping.compression.map(|options: ZfileOptions| options.block_size),
        has_checksums: wrapping.compression.is_some_and(|options| options.checksums),
        layer_id: text_of(layer.id()),
        parent_id: text_of(layer.parent()),
        tag: layer.tag().to_vec(),
        virtual_size_bytes: layer.virtual_size(),
        layer_bytes,
        entries: layer.entries().len() as u64,
        data_bytes: bytes_of(false),
        zeroed_bytes: bytes_of(true),
    })
}

fn text_of(id: LayerId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}

fn name_of(compression: Compression) -> &'static str {
    match compression {
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

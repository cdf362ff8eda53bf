//! New layers: from a disk image, from other layers, from a writable pair.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aenv_layers::{
    commit_disk, export, BootId, Compression, LayerError, LayerId, LayerSummary, Limits, LocalDirectory,
    NewSealed, OpenLayer, PairLocation, Sink, Stack, View, Wrapping, WritableLayer, WritePolicy, ZeroBlock,
    Zeroes, ZfileOptions, MAX_ENTRIES_PER_LAYER, SECTOR_SIZE,
};
use pyo3::prelude::*;

use crate::describe::{describe, LayerDescription};
use crate::detached::run;
use crate::failure::{shown, Failure};
use crate::input::{open_stack, Input};
use crate::output::Output;
use crate::raw_image::RawImage;
use crate::watch::{CancellationToken, Watch, Watcher};

/// What a new layer says about itself, and what it is wrapped in. Equal options and content give equal files.
#[pyclass(frozen, eq, module = "agentenv_core")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewLayer {
    id: LayerId,
    parent: LayerId,
    tag: Vec<u8>,
    wrapping: Wrapping,
}

#[pymethods]
impl NewLayer {
    #[new]
    #[pyo3(signature = (*, layer_id=None, parent_id=None, tag=Vec::new(), compression=None, archive=false))]
    fn new(
        layer_id: Option<&str>,
        parent_id: Option<&str>,
        tag: Vec<u8>,
        compression: Option<&str>,
        archive: bool,
    ) -> PyResult<Self> {
        let compression = compression.map(parse_compression).transpose()?;
        Ok(Self {
            id: parse_id(layer_id)?,
            parent: parse_id(parent_id)?,
            tag,
            wrapping: Wrapping { compression, archive },
        })
    }
}

pub(crate) fn parse_id(text: Option<&str>) -> Result<LayerId, Failure> {
    let refused =
        |text: &str| Failure::Invalid(format!("'{text}' is no UUID, which identifiers of layers are"));
    text.map_or(Ok(LayerId::NONE), |text| text.parse().map_err(|_| refused(text)))
}

fn parse_compression(name: &str) -> Result<ZfileOptions, Failure> {
    let compression = match name {
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => return Err(Failure::Invalid(format!("'{name}' is no compression: lz4 and zstd are"))),
    };
    Ok(ZfileOptions { compression, ..ZfileOptions::default() })
}

/// A layer that was written.
#[pyclass(frozen, eq, hash, get_all, module = "agentenv_core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WrittenLayer {
    /// `sha256:` and the hexadecimal digits of the SHA-256 of the file.
    digest: String,
    /// Bytes of the file.
    file_bytes: u64,
    /// Bytes of the layer without archive and compression.
    layer_bytes: u64,
    /// Entries of the index.
    entries: u64,
    /// Bytes of the disk that the layer holds.
    data_bytes: u64,
    /// Size of the disk; 0 when the layer below decides.
    virtual_size_bytes: u64,
}

/// Make a layer of a raw disk image.
#[pyfunction]
#[pyo3(signature = (image, output, *, new=None, hide_below=false, progress=None, token=None))]
pub(crate) fn commit(
    py: Python<'_>,
    image: PathBuf,
    output: PathBuf,
    new: Option<PyRef<'_, NewLayer>>,
    hide_below: bool,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<WrittenLayer> {
    let new = options(new);
    run(py, Watch::new(progress, token), move |watcher| {
        let image = RawImage::new(Input::open(&image)?)?;
        write_disk(&image, &new, if hide_below { Zeroes::Hiding } else { Zeroes::Omitted }, &output, watcher)
    })
}

/// Make one layer of all layers of a disk, the lowest first. It stands on nothing.
#[pyfunction]
#[pyo3(signature = (layers, output, *, new=None, progress=None, token=None))]
pub(crate) fn flatten(
    py: Python<'_>,
    layers: Vec<PathBuf>,
    output: PathBuf,
    new: Option<PyRef<'_, NewLayer>>,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<WrittenLayer> {
    let new = options(new);
    run(py, Watch::new(progress, token), move |watcher| {
        let stack = open_stack(&layers)?;
        if stack.size() == 0 {
            return Err(Failure::Invalid("none of these layers says how large the disk is".to_owned()));
        }
        write_disk(&stack, &new, Zeroes::Omitted, &output, watcher)
    })
}

/// Make one layer that can take the place of layers that lie on each other, the lowest first. It carries the
/// identifier of the top one, and the parent of the lowest, unless others are given.
#[pyfunction]
#[pyo3(signature = (layers, output, *, new=None, progress=None, token=None))]
pub(crate) fn merge(
    py: Python<'_>,
    layers: Vec<PathBuf>,
    output: PathBuf,
    new: Option<PyRef<'_, NewLayer>>,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<WrittenLayer> {
    let mut new = options(new);
    run(py, Watch::new(progress, token), move |watcher| {
        let stack = open_stack(&layers)?;
        inherit_identifiers(&mut new, &stack);
        watcher.expect(data_bytes(&stack))?;
        let output = Output::create(&output)?;
        let summary = write(&output, &new, |sink| {
            let sealed = sealed(&new, stack.size());
            aenv_layers::flatten(&stack, sealed, sink, &mut |bytes| watcher.flow(bytes))
        })?;
        publish(output, summary, stack.size(), watcher)
    })
}

/// Seal a writable layer that nobody has open, in place, and name its data file `output` in the same directory.
#[pyfunction]
#[pyo3(signature = (directory, *, data, index, output, inherited_size_bytes=0))]
pub(crate) fn seal(
    py: Python<'_>,
    directory: PathBuf,
    data: String,
    index: String,
    output: String,
    inherited_size_bytes: u64,
) -> PyResult<LayerDescription> {
    run(py, Watch::new(None, None), move |_| {
        let sealed = directory.join(&output);
        if std::fs::symlink_metadata(&sealed).is_ok() {
            return Err(Failure::on("create", &sealed)(rustix::io::Errno::EXIST));
        }
        let name = shown(&directory.join(&data));
        let opened = LocalDirectory::open(&directory).map_err(Failure::on("open", &directory))?;
        let location = PairLocation { directory: Arc::new(opened), data, index };
        let options = OpenLayer {
            inherited_size: inherited_size_bytes,
            policy: WritePolicy::default(),
            boot: BootId::of_this_host()
                .map_err(Failure::on("read the boot id below", Path::new("/proc")))?,
            limits: Limits::default(),
        };
        WritableLayer::open(&name, location, options)?.seal_as(&output)?;
        describe(&Input::open(&sealed)?)
    })
}

/// What takes the place of layers is known by the names that whoever stands on them, or next to them, knows.
fn inherit_identifiers(new: &mut NewLayer, stack: &Stack) {
    if let ([bottom, ..], [.., top]) = (stack.layers(), stack.layers()) {
        new.id = if new.id.is_none() { top.id() } else { new.id };
        new.parent = if new.parent.is_none() { bottom.parent() } else { new.parent };
    }
}

fn options(new: Option<PyRef<'_, NewLayer>>) -> NewLayer {
    new.map(|new| new.clone()).unwrap_or_default()
}

fn sealed(new: &NewLayer, virtual_size: u64) -> NewSealed {
    NewSealed { id: new.id, parent: new.parent, virtual_size, tag: new.tag.clone(), detect_zeroes: false }
}

fn data_bytes(stack: &Stack) -> u64 {
    let entries = stack.entries().iter().filter(|entry| !entry.is_zeroed());
    entries.map(|entry| entry.length()).sum::<u64>() * SECTOR_SIZE
}

/// Writes the content of a whole disk. Zeros are left out in larger blocks where the index would become too long.
fn write_disk(
    view: &dyn View,
    new: &NewLayer,
    zeroes: Zeroes,
    output: &Path,
    watcher: &mut Watcher,
) -> Result<WrittenLayer, Failure> {
    let output = Output::create(output)?;
    let mut block = ZeroBlock::Smallest;
    loop {
        watcher.expect(aenv_layers::bytes_to_read(view, block)?)?;
        let outcome = write(&output, new, |sink| {
            let sealed = sealed(new, view.size());
            commit_disk(view, sealed, zeroes, block, sink, &mut |bytes| watcher.flow(bytes))
        });
        match (outcome, block.larger()) {
            (
                Err(Failure::Layer(LayerError::TooLarge { limit: MAX_ENTRIES_PER_LAYER, .. })),
                Some(larger),
            ) => {
                output.restart()?;
                block = larger;
            }
            (outcome, _) => return publish(output, outcome?, view.size(), watcher),
        }
    }
}

fn write(
    output: &Output,
    new: &NewLayer,
    write: impl FnOnce(&mut dyn Sink) -> Result<LayerSummary, LayerError>,
) -> Result<LayerSummary, Failure> {
    Ok(export(&output.name(), output.file(), new.wrapping, write)?)
}

fn publish(
    output: Output,
    summary: LayerSummary,
    virtual_size_bytes: u64,
    watcher: &mut Watcher,
) -> Result<WrittenLayer, Failure> {
    let (file_bytes, digest) = output.summarise(watcher)?;
    output.publish()?;
    watcher.complete()?;
    Ok(WrittenLayer {
        digest,
        file_bytes,
        layer_bytes: summary.length,
        entries: summary.entries,
        data_bytes: summary.data_bytes,
        virtual_size_bytes,
    })
}

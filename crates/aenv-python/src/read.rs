//! Reading layers to their end: into a raw image, or only to see that it can be done.

use std::path::PathBuf;

use aenv_layers::{Content, View, SECTOR_SIZE};
use pyo3::prelude::*;

use crate::describe::{describe, LayerDescription};
use crate::detached::run;
use crate::digest::hash;
use crate::failure::Failure;
use crate::input::{open_stack, read_through, Input, COPY_SIZE};
use crate::output::Output;
use crate::watch::{CancellationToken, Watch, Watcher};

/// What reading a layer from its first byte to its last has shown.
#[pyclass(frozen, eq, hash, get_all, module = "agentenv_core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verification {
    /// `sha256:` and the hexadecimal digits of the SHA-256 of the file.
    digest: String,
    /// What the layer says about itself.
    description: LayerDescription,
}

/// Read every block of a layer and check all that the format lets one check.
#[pyfunction]
#[pyo3(signature = (path, *, progress=None, token=None))]
pub(crate) fn verify(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<Verification> {
    run(py, Watch::new(progress, token), move |watcher| {
        let input = Input::open(&path)?;
        let description = describe(&input)?;
        watcher.expect(input.length)?;
        let (wrapping, source) = input.unwrapped()?;
        if wrapping.compression.is_some() {
            watcher.expect(description.layer_bytes)?;
            read_through(&*source, description.layer_bytes, &path, |bytes| watcher.step(bytes.len() as u64))?;
        }
        let digest = hash(&input, watcher)?;
        watcher.complete()?;
        Ok(Verification { digest, description })
    })
}

/// Write the disk that layers make, the lowest first, as a raw image with holes. Return its size in bytes.
#[pyfunction]
#[pyo3(signature = (layers, output, *, progress=None, token=None))]
pub(crate) fn cat(
    py: Python<'_>,
    layers: Vec<PathBuf>,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<u64> {
    run(py, Watch::new(progress, token), move |watcher| {
        let stack = open_stack(&layers)?;
        let output = Output::create(&output)?;
        copy_data(&stack, &output, watcher)?;
        output.publish()?;
        watcher.complete()?;
        Ok(stack.size())
    })
}

fn copy_data(view: &dyn View, output: &Output, watcher: &mut Watcher) -> Result<(), Failure> {
    let mut pieces = view.pieces(0, view.size())?;
    pieces.retain(|piece| piece.content == Content::Data);
    watcher.expect(pieces.iter().map(|piece| piece.extent.length).sum::<u64>() * SECTOR_SIZE)?;
    output.set_length(view.size())?;
    let mut buffer = vec![0; COPY_SIZE];
    for piece in pieces {
        let end = piece.extent.end() * SECTOR_SIZE;
        let mut at = piece.extent.offset();
        while at < end {
            let count = (end - at).min(COPY_SIZE as u64) as usize;
            view.read(at, &mut buffer[..count])?;
            output.write(at, &buffer[..count])?;
            watcher.step(count as u64)?;
            at += count as u64;
        }
    }
    Ok(())
}

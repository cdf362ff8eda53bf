//! The memory of a process as a layer. What to take and when is the caller's; `aenv-memory` does the work.

use std::path::{Path, PathBuf};

use aenv_memory::{Base, Changes, MemoryError, NewLayerFile, Pages, Process, Region, Source};
use pyo3::prelude::*;

use crate::detached::run;
use crate::digest::spell;
use crate::failure::Failure;
use crate::input::open_stack;
use crate::make::parse_id;
use crate::watch::{CancellationToken, Watch};

/// Pages of a memory that were found, or all of them.
#[pyclass(frozen, module = "agentenv_core")]
pub(crate) struct MemoryPages(Pages);

#[pymethods]
impl MemoryPages {
    /// All pages of so many bytes.
    #[staticmethod]
    fn whole(size_bytes: u64) -> Self {
        Self(Pages::whole(size_bytes))
    }

    /// How many pages these are.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }
}

/// A memory layer that was written.
#[pyclass(frozen, get_all, module = "agentenv_core")]
pub(crate) struct MemoryLayer {
    /// Bytes of the file.
    file_bytes: u64,
    /// Bytes of memory in it.
    data_bytes: u64,
    /// `sha256:` and the hexadecimal digits of the SHA-256 of the file, if it was asked for.
    digest: Option<String>,
}

/// Find the pages of a process's memory that changed. The kernel tracks writes from now on if it is asked to.
#[pyfunction]
#[pyo3(signature = (pid, start_ticks, address, size_bytes, *, changes))]
pub(crate) fn scan_memory(
    py: Python<'_>,
    pid: i32,
    start_ticks: u64,
    address: u64,
    size_bytes: u64,
    changes: &str,
) -> PyResult<MemoryPages> {
    let changes = parse_changes(changes)?;
    run(py, Watch::new(None, None), move |_| {
        let process = Process::open(pid, start_ticks)?;
        let region = Region::new(address, size_bytes)?;
        process.check_region(region)?;
        Ok(MemoryPages(aenv_memory::scan(&process, region, changes)?))
    })
}

/// Write pages of a process's memory as a layer. The file is not durable yet; none is left when this fails.
#[pyfunction]
#[pyo3(signature = (
    pid, start_ticks, address, size_bytes, pages, output, *,
    below=None, compare=false, layer_id=None, parent_id=None, hashed=true, token=None
))]
#[expect(clippy::too_many_arguments, reason = "all but the first six are named by the caller")]
pub(crate) fn write_memory(
    py: Python<'_>,
    pid: i32,
    start_ticks: u64,
    address: u64,
    size_bytes: u64,
    pages: &MemoryPages,
    output: PathBuf,
    below: Option<Vec<PathBuf>>,
    compare: bool,
    layer_id: Option<&str>,
    parent_id: Option<&str>,
    hashed: bool,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<MemoryLayer> {
    let (id, parent) = (parse_id(layer_id)?, parse_id(parent_id)?);
    let pages = &pages.0;
    run(py, Watch::new(None, token), move |watcher| {
        let process = Process::open(pid, start_ticks)?;
        let region = Region::new(address, size_bytes)?;
        process.check_region(region)?;
        let stack = below.as_deref().filter(|_| compare).map(open_stack).transpose()?;
        let base = match (&stack, &below) {
            (Some(stack), _) => Base::Compared(stack),
            (None, Some(_)) => Base::Layers,
            (None, None) => Base::Nothing,
        };
        let new = NewLayerFile { path: &output, id, parent, is_hashed: hashed };
        let source = Source { process: &process, region };
        let written = aenv_memory::write_layer(source, pages, base, new, &mut |bytes| watcher.flow(bytes))?;
        Ok(MemoryLayer {
            file_bytes: written.length,
            data_bytes: written.data_bytes,
            digest: written.digest.map(|digest| spell(&digest)),
        })
    })
}

/// Make a file and its name durable. Returns its digest if asked to.
#[pyfunction]
#[pyo3(signature = (path, *, hashed=true, token=None))]
pub(crate) fn make_durable(
    py: Python<'_>,
    path: PathBuf,
    hashed: bool,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<Option<String>> {
    run(py, Watch::new(None, token), move |watcher| {
        let digest = aenv_memory::make_durable(&path, hashed, &mut |bytes| watcher.flow(bytes))?;
        Ok(digest.map(|digest| spell(&digest)))
    })
}

fn parse_changes(word: &str) -> Result<Changes, Failure> {
    match word {
        "since_start" => Ok(Changes::SinceStart),
        "since_start_and_track" => Ok(Changes::SinceStartAndTrack),
        "since_last_scan" => Ok(Changes::SinceLastScan),
        _ => Err(Failure::Invalid(format!("'{word}' is no kind of changes"))),
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Layer(error) => Self::Layer(error),
            MemoryError::File { operation, path, source } => {
                Self::File { attempt: operation, path: Path::new(&path).to_owned(), source }
            }
            error => Self::Memory(error),
        }
    }
}

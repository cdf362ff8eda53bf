//! SHA-256 of files. The hash uses the instructions of the processor where there are some.

use std::fmt::Write;
use std::path::PathBuf;

use pyo3::prelude::*;
use sha2::{Digest, Sha256};

use crate::detached::run;
use crate::failure::Failure;
use crate::input::{read_through, Input};
use crate::watch::{CancellationToken, Watch, Watcher};

/// Return the SHA-256 of a file in hexadecimal digits.
#[pyfunction]
#[pyo3(signature = (path, *, progress=None, token=None))]
pub(crate) fn digest(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    token: Option<PyRef<'_, CancellationToken>>,
) -> PyResult<String> {
    run(py, Watch::new(progress, token), move |watcher| {
        let input = Input::open(&path)?;
        watcher.expect(input.length)?;
        let sha256 = hash(&input, watcher)?;
        watcher.complete()?;
        Ok(sha256)
    })
}

/// Hashes a whole file.
pub(crate) fn hash(input: &Input, watcher: &mut Watcher) -> Result<String, Failure> {
    let mut hasher = Sha256::new();
    read_through(&*input.source()?, input.length, &input.path, |bytes| {
        hasher.update(bytes);
        watcher.step(bytes.len() as u64)
    })?;
    Ok(hexadecimal(&hasher.finalize()))
}

/// The digits of a digest.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes any text");
        text
    })
}

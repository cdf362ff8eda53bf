//! SHA-256 of files. The hash uses the instructions of the processor where there are some.

use std::fmt::Write;
use std::path::PathBuf;

use pyo3::prelude::*;
use sha2::{Digest, Sha256};

use crate::detached::run;
use crate::failure::Failure;
use crate::input::{read_through, Input};
use crate::watch::{CancellationToken, Watch, Watcher};

/// Return the digest of a file: `sha256:` and hexadecimal digits.
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
        let digest = hash(&input, watcher)?;
        watcher.complete()?;
        Ok(digest)
    })
}

/// Hashes a whole file.
pub(crate) fn hash(input: &Input, watcher: &mut Watcher) -> Result<String, Failure> {
    let mut hasher = Sha256::new();
    read_through(&*input.source()?, input.length, &input.path, |bytes| {
        hasher.update(bytes);
        watcher.step(bytes.len() as u64)
    })?;
    Ok(text_of(hasher))
}

/// A digest as manifests write it.
pub(crate) fn text_of(hasher: Sha256) -> String {
    spell(&hasher.finalize())
}

/// The same, of its bytes.
pub(crate) fn spell(digest: &[u8]) -> String {
    digest.iter().fold("sha256:".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes any text");
        text
    })
}

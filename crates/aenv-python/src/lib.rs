//! The Python module `agentenv_core`: work on whole layer files. Glue only: formats and rules are those of
//! `aenv-layers`. No call holds the interpreter while it works, and no panic reaches it.
#![forbid(unsafe_code)]

mod describe;
mod detached;
mod digest;
mod failure;
mod input;
mod make;
mod memory;
mod output;
mod raw_image;
mod read;
mod watch;

use pyo3::prelude::*;

/// Work on whole layer files, outside of the interpreter. Typed by `agentenv_core.pyi`.
#[pymodule]
mod agentenv_core {
    #[pymodule_export]
    use crate::describe::{inspect, LayerDescription};
    #[pymodule_export]
    use crate::digest::digest;
    #[pymodule_export]
    use crate::failure::{
        Cancelled, CoreError, CorruptLayer, FileExists, FileFailed, FileMissing, InternalError,
        InvalidRequest, LayerTooLarge, MemoryFailed, NoSpace, ProcessEnded, UnsupportedLayer,
    };
    #[pymodule_export]
    use crate::make::{commit, flatten, merge, seal, NewLayer, WrittenLayer};
    #[pymodule_export]
    use crate::memory::{make_durable, scan_memory, write_memory, MemoryLayer, MemoryPages};
    #[pymodule_export]
    use crate::read::{cat, verify, Verification};
    #[pymodule_export]
    use crate::watch::CancellationToken;
}

//! A guest's memory, taken from outside of its monitor: which pages changed, and a layer that holds them. It stops
//! nobody and decides nothing; what stands still, and when, is up to the caller.

mod classify;
mod copy;
mod error;
mod file;
mod maps;
mod process;
mod runs;
mod scan;

pub use copy::{Base, Source, Watcher};
pub use error::MemoryError;
pub use file::{make_durable, write_layer, Digest, LayerFile, NewLayerFile};
pub use process::{Process, Region};
pub use runs::{PageRun, Pages, PAGE_SIZE};
pub use scan::{scan, Changes};

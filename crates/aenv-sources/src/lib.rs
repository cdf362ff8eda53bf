//! Where the bytes of immutable layers come from: files, registries, object stores, and the block cache before the far
//! ones. It knows nothing of disk formats; a source is bytes under a digest. Whatever a remote says is checked.
#![forbid(unsafe_code)]

mod bounded;
mod cache;
mod digest;
mod download;
mod error;
mod escape;
mod factory;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod gate;
mod http;
mod object;
mod reference;
mod registry;
mod remote;
mod trace;

pub use cache::{CacheOptions, Statistics};
pub use digest::{Digest, InvalidDigest};
pub use download::{Download, DownloadOptions, DownloadState};
pub use error::{Misbehaviour, Prohibition, SourceError};
pub use factory::{Pin, SourceFactory, SourceOptions};
pub use gate::in_background;
pub use http::HttpOptions;
pub use reference::LayerReference;
pub use remote::Remote;
pub use trace::{prefetch, InvalidTrace, PrefetchOptions, Prefetched, Recorder, Trace, TraceRecord};

// The simulated machine of the layers' tests: one model of what disks do in a crash for both crates.
#[cfg(test)]
#[path = "../../aenv-layers/tests/layers/simulation.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it serves two test programs; a failed unwrap is a failed test"
)]
mod simulation;
#[cfg(test)]
mod support {
    pub(crate) const SECTOR: usize = 512;
}

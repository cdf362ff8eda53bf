//! Where the bytes of immutable layers come from: files, registries, object stores, and the block cache before the far
//! ones. It knows nothing of disk formats; a source is bytes under a digest. Whatever a remote says is checked.
#![forbid(unsafe_code)]

mod digest;
mod error;
mod factory;
mod reference;

pub use digest::{Digest, InvalidDigest};
pub use error::SourceError;
pub use factory::{SourceFactory, SourceOptions};
pub use reference::LayerReference;

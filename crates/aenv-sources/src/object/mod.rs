//! Objects of S3-compatible stores, read by range.

mod blob;
mod credentials;
mod signature;

pub(crate) use blob::{ObjectBlob, ObjectLocation};
#[cfg(feature = "fuzzing")]
pub(crate) use credentials::Credentials;

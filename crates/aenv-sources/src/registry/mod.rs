//! Blobs of registries that speak the OCI distribution protocol. It knows nothing of manifests or tags.

mod blob;
mod challenge;
mod login;
mod repository;
mod token;

pub(crate) use blob::RegistryBlob;
#[cfg(feature = "fuzzing")]
pub(crate) use challenge::Challenge;
#[cfg(feature = "fuzzing")]
pub(crate) use login::find_login;
pub(crate) use repository::Repository;
#[cfg(feature = "fuzzing")]
pub(crate) use token::parse_token;
pub(crate) use token::TokenStore;

//! The small REST routes between host and guest: life, identity, figures, the way out.

mod entropy;
pub(crate) mod freeze;
mod identity;
pub(crate) mod init;
mod meminfo;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod shutdown;
mod timestamp;
mod trust;

pub(crate) use identity::is_host_name;
#[cfg(feature = "fuzzing")]
pub(crate) use init::fuzz_init;

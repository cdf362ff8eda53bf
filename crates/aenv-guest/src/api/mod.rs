//! The small REST routes between host and guest: life, identity, figures, the way out.

mod entropy;
mod identity;
pub(crate) mod init;
pub(crate) mod metrics;
pub(crate) mod shutdown;
mod timestamp;

pub(crate) use identity::is_host_name;

//! The small REST routes between host and guest.

pub(crate) mod init;
pub(crate) mod metrics;
pub(crate) mod shutdown;

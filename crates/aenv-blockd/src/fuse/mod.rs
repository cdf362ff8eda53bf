//! The FUSE server: one mount, one directory, a regular file per image. It knows the kernel's protocol and nothing of
//! the device table.

mod abi;
mod answer;
mod device;
mod exporter;
mod negotiate;
mod nodes;
mod opens;
mod request;
mod service;
mod session;
mod transfer;

pub(crate) use device::Device;
pub(crate) use exporter::FuseExporter;
pub(crate) use negotiate::{negotiate, Agreement, NegotiationError};
pub(crate) use nodes::Nodes;
pub(crate) use service::Service;
pub(crate) use session::start;

#[cfg(test)]
mod tests;

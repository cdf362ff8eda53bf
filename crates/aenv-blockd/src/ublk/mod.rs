//! The ublk exporter: a block device per disk, served from io_uring. It knows the kernel's protocol and nothing of the
//! device table; the kernel's own devices are its record of what a dead server left.

mod abi;
mod attach;
mod character;
mod command;
mod control;
mod exporter;
mod mailbox;
mod nodes;
mod openers;
mod ownership;
mod page_cache;
mod queue;
mod request;
mod tags;
mod thread;
mod transfer;

pub(crate) use control::{ControlDevice, UblkError};
pub(crate) use exporter::{clean, UblkExporter};

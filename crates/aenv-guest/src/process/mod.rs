//! Connect service `process.Process`: starts programs, carries their streams, signals them, says how they ended.

mod clone;
mod descent;
mod descriptor;
mod environment;
mod exit;
mod frames;
mod group;
mod input;
mod inside;
mod lifecycle;
mod messages;
mod output;
mod program;
mod registry;
mod relay;
mod resume;
mod service;
mod spawn;
mod start;
mod terminal;

pub(crate) use environment::check_variable;
#[cfg(feature = "fuzzing")]
pub(crate) use messages::fuzz_messages;
pub(crate) use registry::Registry;
pub(crate) use resume::resume;
pub(crate) use service::handle;

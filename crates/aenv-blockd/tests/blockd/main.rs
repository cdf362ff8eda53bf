//! The program on a real mount. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod control;
mod disk;
mod faults;
mod memory;
mod remote;
mod seal;
mod support;
mod survival;

//! Memory of real processes becomes layers: what changed, all of it, and nothing but it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod capture;
mod failure;
mod support;
mod tracking;

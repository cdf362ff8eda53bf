//! Behaviour of layers from the outside: golden vectors, models, simulated crashes and failures, damaged input.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crash;
mod damage;
mod disk;
mod failure;
mod simulation;
mod support;
mod vectors;
mod writable;

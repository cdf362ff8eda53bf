//! Behaviour of sources from the outside: rules of registries and stores, real servers, the cache in front of them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cache;
mod download;
mod objects;
mod registry_real;
mod registry_rules;
mod server;
mod support;

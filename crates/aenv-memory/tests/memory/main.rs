//! Memory of real processes becomes layers: what changed, all of it, and nothing but it.

mod capture;
mod failure;
mod support;
mod tracking;

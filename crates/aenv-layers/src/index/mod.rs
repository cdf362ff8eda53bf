//! Indices in memory: sorted slices for sealed layers and stacks, a tree for the writable layer. No files here.

mod lookup;
mod overlay;
mod sealed;
mod tree;

pub use crate::lsmt::Entry;
pub(crate) use lookup::overlapping;
pub(crate) use overlay::{join_neighbours, overlay, overlay_all};
pub(crate) use sealed::{parse_sealed, serialise};
pub(crate) use tree::Tree;

//! The bytes of a layer file: header and trailer, index entries, durability marks. Pure: no files here.

mod entry;
mod layer_id;
mod superblock;
mod watermark;

pub use entry::Entry;
pub use layer_id::LayerId;
pub(crate) use superblock::{Role, Superblock, MAGIC};
pub(crate) use watermark::{newest, Watermark, SLOT_SIZE};

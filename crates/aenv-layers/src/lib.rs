//! The layers under every disk and memory image: overlaybd formats, stacks of sealed layers, the writable layer.
//! It decides nothing about where bytes live or when work happens: files come in behind traits, time and threads stay
//! outside. What it reads is untrusted; every parser ends in a typed error or in a valid layer.
#![forbid(unsafe_code)]

mod checksum;
mod commit;
mod container;
mod disk;
mod error;
mod extent;
mod gaps;
mod index;
mod limits;
mod lsmt;
mod sealed;
mod stack;
mod storage;
mod tar;
mod view;
mod whole;
mod writable;
mod writer;
mod zfile;

pub use commit::{commit, flatten, Watcher};
pub use container::{export, strip_wrapping, unwrap_layer, Wrapping};
pub use disk::Disk;
pub use error::{Damage, LayerError, Operation};
pub use extent::Extent;
pub use gaps::{bridge_gaps, bridge_gaps_to};
pub use index::Entry;
pub use limits::{
    Limits, MAX_ENTRIES_PER_LAYER, MAX_ENTRIES_PER_STACK, MAX_LAYERS, MAX_RUN_SECTORS, SECTOR_SIZE,
};
pub use lsmt::LayerId;
pub use sealed::SealedLayer;
pub use stack::Stack;
pub use storage::{BootId, Directory, File, LocalDirectory, LocalFile, Memory, ReadAt};
pub use tar::{find_member, TarWriter};
pub use view::{Content, Piece, View};
pub use whole::{bytes_to_read, commit_disk, ZeroBlock, Zeroes};
pub use writable::{
    IndexUsage, NewLayer, OpenLayer, Overwrite, PairLocation, SpaceUsage, WritableLayer, WritePolicy,
};
pub use writer::{FileSink, LayerSummary, LayerWriter, NewSealed, Sink};
pub use zfile::{Compression, ZfileOptions, ZfileReader, ZfileWriter};

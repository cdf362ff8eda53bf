//! The writable layer: a data file and a log of index records, both append-only in format. It promises that an
//! acknowledged write survives the death of this program, and a flushed one the death of the host.
//!
//! Order of locks: `marks`, then `gate`, then `state`.

mod access;
mod compact;
mod create;
mod flush;
mod grow;
mod open;
mod read;
mod reclaim;
mod replay;
mod seal;
mod write;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::error::LayerError;
use crate::index::Tree;
use crate::limits::{Limits, SECTOR_SIZE};
use crate::lsmt::{LayerId, Superblock};
use crate::storage::{BootId, Directory, FileHandle};
use reclaim::DeadRanges;

/// Where the two files of a writable layer are.
#[derive(Clone)]
pub struct PairLocation {
    /// The directory of both.
    pub directory: Arc<dyn Directory>,
    /// Name of the data file.
    pub data: String,
    /// Name of the index file. The same with `.new` behind it is used while the index is compacted.
    pub index: String,
}

/// What happens when sectors are written that the layer already holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Data is appended, and the old space is dead.
    Append,
    /// Data replaces the old in its place, so that the file grows with what was touched and not with time.
    #[default]
    InPlace,
}

/// How a writable layer behaves while it is open. Nothing of it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WritePolicy {
    /// Where overwritten sectors go.
    pub overwrite: Overwrite,
    /// Whether dead ranges are remembered, so that `reclaim` can give their space back.
    pub remember_dead: bool,
}

/// What a new writable layer is.
#[derive(Clone, Debug)]
pub struct NewLayer {
    /// Its identifier.
    pub id: LayerId,
    /// The identifier of the layer below. Informative only.
    pub parent: LayerId,
    /// Size of the virtual disk in bytes.
    pub virtual_size: u64,
    /// How it behaves.
    pub policy: WritePolicy,
    /// The life that the host is in.
    pub boot: BootId,
}

/// How an existing writable layer is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenLayer {
    /// Size of the virtual disk when the layer leaves it to the one below.
    pub inherited_size: u64,
    /// How it behaves.
    pub policy: WritePolicy,
    /// The life that the host is in.
    pub boot: BootId,
    /// What is accepted.
    pub limits: Limits,
}

/// Size of the log against what it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexUsage {
    /// Records in the file.
    pub records: u64,
    /// Runs that they amount to.
    pub runs: u64,
}

/// Size of the data file against what it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Length of the data file in bytes; holes count.
    pub file_bytes: u64,
    /// Bytes that the index points to.
    pub live_bytes: u64,
}

/// An open writable layer. All of it can be used from many threads at once.
pub struct WritableLayer {
    name: Arc<str>,
    location: PairLocation,
    policy: WritePolicy,
    boot: BootId,
    limits: Limits,
    /// Identity and tag; sizes and offsets are filled in where a header is written.
    identity: Superblock,
    data: FileHandle,
    /// Where the next appended sector goes. Space is reserved first and written without a lock.
    data_end: AtomicU64,
    virtual_size: AtomicU64,
    /// What the headers say: 0 while the size is inherited.
    stored_size: AtomicU64,
    /// Whether something may not be durable yet.
    is_dirty: AtomicBool,
    is_frozen: AtomicBool,
    /// Set when it is unknown what is on the disk. Never cleared: only a new open can tell.
    is_failed: AtomicBool,
    flushes_begun: AtomicU64,
    marks: Mutex<Marks>,
    /// Held shared by reads and writes, and exclusively by what must not meet one under way.
    gate: RwLock<()>,
    state: RwLock<State>,
}

/// What was promised to be durable.
struct Marks {
    /// Sequence of the last mark written.
    sequence: u64,
    /// Number of the last flush that completed.
    completed: u64,
    /// Bytes of the index that are durable.
    confirmed: u64,
    /// Bytes of the index covered by a flush of this program since the last compaction.
    durable: u64,
}

/// The index and its log.
struct State {
    index: FileHandle,
    /// Bytes of the log, header included. Invariant: a multiple of the record size behind the header.
    index_length: u64,
    /// CRC-32C of the log from where the last flush ended.
    checksum: u32,
    tree: Tree,
    /// The end of the data that records point to, in sectors. Invariant: the data file is at least that long.
    recorded_end: u64,
    dead: DeadRanges,
}

impl WritableLayer {
    /// The name that errors carry.
    pub fn layer_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The identifier that the layer carries.
    pub fn id(&self) -> LayerId {
        self.identity.id
    }

    /// The size of the virtual disk in bytes.
    pub fn virtual_size(&self) -> u64 {
        self.virtual_size.load(Ordering::Acquire)
    }

    /// Whether the layer takes no more writes because it is about to be sealed.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// How large the log is against what it describes.
    pub fn index_usage(&self) -> IndexUsage {
        let state = self.state();
        let records = (state.index_length - crate::limits::BLOCK_SIZE) / crate::index::Entry::SIZE as u64;
        IndexUsage { records, runs: state.tree.len() as u64 }
    }

    /// How much of the data file is alive. Counts every run.
    pub fn space_usage(&self) -> SpaceUsage {
        let state = self.state();
        let live: u64 = state.tree.iter().filter(|run| !run.is_zeroed()).map(|run| run.length()).sum();
        let end = self.data_end.load(Ordering::Acquire);
        SpaceUsage { file_bytes: end * SECTOR_SIZE, live_bytes: live * SECTOR_SIZE }
    }

    fn fail(&self) {
        self.is_failed.store(true, Ordering::Release);
    }

    fn check_not_failed(&self) -> Result<(), LayerError> {
        if self.is_failed.load(Ordering::Acquire) {
            return Err(LayerError::Failed { layer: Arc::clone(&self.name) });
        }
        Ok(())
    }
}

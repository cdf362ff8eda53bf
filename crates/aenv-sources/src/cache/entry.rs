//! One blob in the cache: its file, the state of its chunks, and the index that makes them last.
//!
//! Invariant: the durable index names only chunks whose bytes are durable. So data is synced before an index that names
//! it, and an index without a chunk is durable before the chunk is punched out.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aenv_layers::{Directory, File};

use super::budget::Budget;
use super::disk::{absent_is_fine, read_exact, write_all};
use super::flight::Flight;
use super::geometry::Geometry;
use super::index::Index;
use super::slots::{Phase, Slots};
use super::statistics::Counters;
use crate::digest::Digest;
use crate::gate::Gate;

pub(super) const DATA: &str = "data";
pub(super) const INDEX: &str = "index";
pub(super) const NEW_INDEX: &str = "index.new";

/// What the blobs of one cache share.
pub(crate) struct Shared {
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    pub(crate) gate: Gate,
    /// The longest run that is fetched at once.
    pub(crate) fetch_bytes: u64,
    /// Called when the cache has become too full.
    pub(crate) alarm: Box<dyn Fn() + Send + Sync>,
    /// The lock of the directory, held as long as anybody may write there. The kernel releases it at any death.
    pub(crate) _lock: Option<std::fs::File>,
}

/// A blob in the cache.
pub(crate) struct Entry {
    pub(super) shared: Arc<Shared>,
    pub(super) digest: Digest,
    pub(super) geometry: Geometry,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) file: Arc<dyn File>,
    pub(super) slots: Slots,
    /// The checksum of each stored chunk.
    pub(super) sums: Box<[AtomicU32]>,
    /// Invariant: a chunk is in here exactly while it is `Busy`; both change under this lock.
    pub(super) flights: Mutex<HashMap<u32, Arc<Flight>>>,
    /// Held while the index is written or chunks are evicted. The hand of the clock.
    pub(super) saver: Mutex<u32>,
    pub(super) is_dirty: AtomicBool,
    pub(super) is_whole: AtomicBool,
    /// Cleared when a sync failed: nobody knows then what a later read from the disk brings.
    is_trusted: AtomicBool,
    is_tainted: AtomicBool,
    /// How often chunks were given up.
    pub(super) losses: AtomicU64,
    last_used: AtomicU64,
}

impl Entry {
    /// Opens what an earlier process left of the blob in this directory, or begins anew.
    pub(crate) fn open(
        directory: Arc<dyn Directory>,
        digest: Digest,
        geometry: Geometry,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let kept =
            read_index(&*directory).filter(|index| index.digest == digest && index.geometry == geometry);
        let file = kept.as_ref().and_then(|_| directory.open(DATA).ok());
        let file = file.filter(|file| file.length().is_ok_and(|length| length >= geometry.size()));
        let (file, index) = match (file, kept) {
            (Some(file), Some(index)) => (file, index),
            _ => (create(&*directory, geometry)?, empty(digest, geometry)),
        };
        // The process before may have died between renaming the index and making that durable.
        directory.sync()?;
        // What was stored after the index was written last is not known, and would not be counted.
        for gap in gaps(&index) {
            punch(&*file, geometry, gap)?;
        }
        let entry = Self::new(directory, file, &index, shared);
        entry.shared.budget.count(entry.stored_bytes());
        Ok(entry)
    }

    fn new(directory: Arc<dyn Directory>, file: Arc<dyn File>, index: &Index, shared: Arc<Shared>) -> Self {
        let phase = |sum: &Option<u32>| if sum.is_some() { Phase::Unverified } else { Phase::Absent };
        Self {
            shared,
            digest: index.digest,
            geometry: index.geometry,
            directory,
            file,
            slots: Slots::new(index.sums.iter().map(phase)),
            sums: index.sums.iter().map(|sum| AtomicU32::new(sum.unwrap_or_default())).collect(),
            flights: Mutex::default(),
            saver: Mutex::new(0),
            is_dirty: AtomicBool::new(false),
            is_whole: AtomicBool::new(index.is_whole),
            is_trusted: AtomicBool::new(true),
            is_tainted: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            last_used: AtomicU64::new(index.last_used),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        let stored = self.chunks().filter(|&chunk| self.slots.phase(chunk).is_stored());
        stored.map(|chunk| self.geometry.length(chunk)).sum()
    }

    /// Whether the whole blob is here and has its digest.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }

    pub(crate) fn distrust(&self) {
        self.is_trusted.store(false, Ordering::Release);
    }

    pub(crate) fn is_tainted(&self) -> bool {
        self.is_tainted.load(Ordering::Acquire)
    }

    pub(crate) fn taint(&self) {
        self.is_tainted.store(true, Ordering::Release);
        self.shared.counters.tainted_blobs.add(1);
    }

    /// Seconds since 1970.
    pub(crate) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    pub(crate) fn touch(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.last_used.swap(now, Ordering::Relaxed) != now {
            self.is_dirty.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn chunks(&self) -> Range<u32> {
        0..self.geometry.count()
    }

    /// Makes durable what is in the cache now.
    pub(crate) fn checkpoint(&self) -> io::Result<()> {
        let _saver = self.saver.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_trusted() || !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.save()
    }

    /// Writes an index of the chunks that are stored now and not `Busy`. The caller holds `saver`.
    pub(super) fn save(&self) -> io::Result<()> {
        // The list is made first: a chunk that is stored after the sync must not be on it.
        let index = self.index();
        if let Err(error) = self.file.sync() {
            // The kernel may have dropped pages that no index names yet; the durable index stays true.
            self.distrust();
            return Err(error);
        }
        self.write_index(&index).inspect_err(|_| self.is_dirty.store(true, Ordering::Release))
    }

    fn index(&self) -> Index {
        let sum = |chunk: u32| {
            let is_stored = self.slots.phase(chunk).is_stored();
            is_stored.then(|| self.sums[chunk as usize].load(Ordering::Acquire))
        };
        let sums: Vec<_> = self.chunks().map(sum).collect();
        let is_whole = self.is_whole() && sums.iter().all(Option::is_some);
        let (geometry, digest, last_used) = (self.geometry, self.digest, self.last_used());
        Index { geometry, digest, last_used, is_whole, sums }
    }

    fn write_index(&self, index: &Index) -> io::Result<()> {
        absent_is_fine(self.directory.remove(NEW_INDEX))?;
        let file = self.directory.create(NEW_INDEX)?;
        write_all(&*file, 0, &index.encode())?;
        file.sync()?;
        self.directory.rename(NEW_INDEX, INDEX)?;
        self.directory.sync()
    }
}

/// Reads the index of a directory, if there is one that makes sense.
pub(crate) fn read_index(directory: &dyn Directory) -> Option<Index> {
    const HEADER: u64 = 72;
    let file = directory.open(INDEX).ok()?;
    let mut header = [0; HEADER as usize];
    read_exact(&*file, 0, &mut header).ok()?;
    let length = Index::length(Index::parse_geometry(&header)?);
    if file.length().ok()? != length as u64 {
        return None;
    }
    let mut bytes = vec![0; length];
    read_exact(&*file, 0, &mut bytes).ok()?;
    Index::parse(&bytes)
}

/// Removes what is in the directory, the index first so that it never speaks of other data, and makes an empty file.
fn create(directory: &dyn Directory, geometry: Geometry) -> io::Result<Arc<dyn File>> {
    absent_is_fine(directory.remove(INDEX))?;
    directory.sync()?;
    absent_is_fine(directory.remove(NEW_INDEX))?;
    absent_is_fine(directory.remove(DATA))?;
    let file = directory.create(DATA)?;
    file.set_length(geometry.size())?;
    Ok(file)
}

fn empty(digest: Digest, geometry: Geometry) -> Index {
    let sums = vec![None; geometry.count() as usize];
    Index { geometry, digest, last_used: 0, is_whole: false, sums }
}

/// The runs of chunks that an index does not name.
fn gaps(index: &Index) -> Vec<Range<u32>> {
    let mut gaps: Vec<Range<u32>> = Vec::new();
    for chunk in (0..index.geometry.count()).filter(|&chunk| index.sums[chunk as usize].is_none()) {
        match gaps.last_mut() {
            Some(gap) if gap.end == chunk => gap.end = chunk + 1,
            _ => gaps.push(chunk..chunk + 1),
        }
    }
    gaps
}

/// Gives the space of chunks back. The last one is punched as if it were full, so that its last block goes too.
pub(super) fn punch(file: &dyn File, geometry: Geometry, chunks: Range<u32>) -> io::Result<()> {
    let start = geometry.start(chunks.start);
    file.punch(start, geometry.start(chunks.end) - start)
}

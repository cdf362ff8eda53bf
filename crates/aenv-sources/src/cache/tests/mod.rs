//! The cache on simulated disks and against odd remotes. What needs real files and servers is tested from the outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crash;
mod model;
mod sharing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use aenv_layers::{Directory, Memory, ReadAt};

use super::blob::CachedBlob;
use super::budget::Budget;
use super::entry::{Entry, Shared};
use super::geometry::Geometry;
use crate::digest::Digest;
use crate::error::SourceError;
use crate::remote::Remote;
use crate::simulation::{Dice, Machine};

const CHUNK: u32 = 4096;

fn content(length: usize) -> Vec<u8> {
    let mut dice = Dice::new(5);
    (0..length).map(|_| dice.below(256) as u8).collect()
}

fn shared(capacity: u64) -> Arc<Shared> {
    Arc::new(Shared {
        budget: Budget::new(capacity),
        counters: Default::default(),
        gate: Default::default(),
        fetch_bytes: 4 * u64::from(CHUNK),
        alarm: Box::new(|| ()),
        _lock: None,
    })
}

/// A remote whose bytes are known, and which counts what is asked of it.
#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    fetches: AtomicU64,
    /// Fails this many times first.
    failures: AtomicU64,
    /// Fetches meet somebody here before they go on.
    meeting: Option<Barrier>,
    ranges: Mutex<Vec<(u64, usize)>>,
}

impl Known {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    fn count(&self) -> u64 {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl Remote for Known {
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.ranges.lock().unwrap().push((offset, buffer.len()));
        if let Some(meeting) = &self.meeting {
            meeting.wait();
        }
        let count_down = |left: u64| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).is_ok() {
            return Err(SourceError::invalid("the remote fails"));
        }
        let start = offset as usize;
        buffer.copy_from_slice(&self.bytes[start..start + buffer.len()]);
        Ok(())
    }
}

fn digest() -> Digest {
    Digest::from_bytes([1; 32])
}

fn open_entry(
    directory: Arc<dyn Directory>,
    size: usize,
    shared: Arc<Shared>,
) -> std::io::Result<Arc<Entry>> {
    let geometry = Geometry::new(size as u64, CHUNK).unwrap();
    Entry::open(directory, digest(), geometry, shared).map(Arc::new)
}

/// A blob over a simulated machine that never fails.
fn blob(remote: Arc<Known>, shared: Arc<Shared>) -> CachedBlob {
    let machine = Machine::new(1);
    let entry = open_entry(machine.directory(), remote.bytes.len(), shared).unwrap();
    CachedBlob::new(entry, remote, None)
}

fn read(blob: &dyn ReadAt, offset: usize, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0xee; length];
    let mut done = 0;
    while done < length {
        match blob.read_at((offset + done) as u64, &mut bytes[done..])? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// A directory whose only purpose is to fail where a test wants it.
#[derive(Default)]
struct Broken {
    data: Arc<Memory>,
}

impl Directory for Broken {
    fn create(&self, _name: &str) -> std::io::Result<Arc<dyn aenv_layers::File>> {
        Ok(Arc::clone(&self.data) as _)
    }

    fn open(&self, _name: &str) -> std::io::Result<Arc<dyn aenv_layers::File>> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn rename(&self, _from: &str, _to: &str) -> std::io::Result<()> {
        Err(std::io::Error::from_raw_os_error(5))
    }

    fn remove(&self, _name: &str) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

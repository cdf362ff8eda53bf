//! Writing: data first, then its record, then the index in memory. When this returns, the kernel has both.

use std::sync::atomic::Ordering;

use super::{Overwrite, WritableLayer};
use crate::error::LayerError;
use crate::extent::Extent;
use crate::index::{serialise, Entry};
use crate::limits::{BLOCK_SIZE, MAX_ENTRIES_PER_STACK, MAX_FILE_SECTORS, MAX_RUN_SECTORS, SECTOR_SIZE};

/// Sectors that one record of data describes, as the reference cuts writes.
const RECORD_SECTORS: u64 = (4 << 20) / SECTOR_SIZE;

/// Where a part of a write goes.
struct Part {
    extent: Extent,
    /// The sector of the data file; none while it has to be appended.
    target: Option<u64>,
}

impl WritableLayer {
    /// Writes whole sectors.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), LayerError> {
        let extent = Extent::checked(&self.name, offset, bytes.len() as u64, self.virtual_size())?;
        let _gate = self.enter_to_write()?;
        let parts = self.plan(extent);
        let appended: u64 =
            parts.iter().filter(|part| part.target.is_none()).map(|part| part.extent.length).sum();
        let start = self.reserve(appended)?;
        let mut records = Vec::new();
        let mut end = start;
        for part in parts {
            let from = ((part.extent.start - extent.start) * SECTOR_SIZE) as usize;
            let part_bytes = &bytes[from..from + (part.extent.length * SECTOR_SIZE) as usize];
            let target = part.target.unwrap_or(end);
            if let Err(error) = self.data.write_all(target * SECTOR_SIZE, part_bytes) {
                self.give_back(start, appended);
                return Err(error);
            }
            if part.target.is_none() {
                push_records(&mut records, part.extent, target);
                end += part.extent.length;
            }
        }
        self.record(&records)?;
        self.is_dirty.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Makes whole sectors read as zeros, whatever is below. Takes no space for data.
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), LayerError> {
        let extent = Extent::checked(&self.name, offset, length, self.virtual_size())?;
        let _gate = self.enter_to_write()?;
        let target = {
            let state = self.state();
            let known: u64 =
                state.tree.overlapping(extent).filter(|run| run.is_zeroed()).map(|run| run.length()).sum();
            if known == extent.length {
                return Ok(());
            }
            // Not the end of the file: space may be reserved that a crash leaves unwritten.
            state.recorded_end
        };
        let mut records = Vec::new();
        let mut at = extent.start;
        while at < extent.end() {
            let length = MAX_RUN_SECTORS.min(extent.end() - at);
            records.push(Entry::zeroed(at, length, target));
            at += length;
        }
        self.record(&records)?;
        self.is_dirty.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Which parts of a write replace data in its place, and which are appended.
    fn plan(&self, extent: Extent) -> Vec<Part> {
        if self.policy.overwrite == Overwrite::Append {
            return vec![Part { extent, target: None }];
        }
        let state = self.state();
        let mut parts = Vec::new();
        let mut at = extent.start;
        for run in state.tree.overlapping(extent).filter(|run| !run.is_zeroed()) {
            if at < run.start() {
                parts.push(Part { extent: Extent { start: at, length: run.start() - at }, target: None });
            }
            parts.push(Part { extent: run.extent(), target: Some(run.target()) });
            at = run.end();
        }
        if at < extent.end() {
            parts.push(Part { extent: Extent { start: at, length: extent.end() - at }, target: None });
        }
        parts
    }

    fn reserve(&self, sectors: u64) -> Result<u64, LayerError> {
        let start = self.data_end.fetch_add(sectors, Ordering::AcqRel);
        LayerError::limit(&self.name, "size of the data file in sectors", start + sectors, MAX_FILE_SECTORS)?;
        Ok(start)
    }

    /// Undoes a reservation that nothing points to, unless another one already follows it.
    fn give_back(&self, start: u64, sectors: u64) {
        let _ = self.data_end.compare_exchange(start + sectors, start, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Appends records to the log and applies them, as one step for everybody else.
    fn record(&self, records: &[Entry]) -> Result<(), LayerError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut guard = self.state_mut();
        let state = &mut *guard;
        let bytes = serialise(records);
        let end = state.index_length + bytes.len() as u64;
        let count = (end - BLOCK_SIZE) / Entry::SIZE as u64;
        LayerError::limit(&self.name, "number of index records", count, MAX_ENTRIES_PER_STACK)?;
        if let Err(error) = state.index.write_all(state.index_length, &bytes) {
            // Leftovers behind a shorter later record would be believed by the next open.
            if state.index.set_length(state.index_length).is_err() {
                self.fail();
            }
            return Err(error);
        }
        state.index_length = end;
        state.checksum = crc32c::crc32c_append(state.checksum, &bytes);
        for &record in records {
            state.recorded_end = state.recorded_end.max(record.target_end());
            let dead = &mut state.dead;
            state.tree.insert(record, |old| {
                if self.policy.remember_dead && !old.is_zeroed() {
                    dead.push(old.target(), old.length(), end);
                }
            });
        }
        Ok(())
    }
}

fn push_records(records: &mut Vec<Entry>, extent: Extent, target: u64) {
    let mut done = 0;
    while done < extent.length {
        let length = RECORD_SECTORS.min(extent.length - done);
        records.push(Entry::with_data(extent.start + done, length, target + done));
        done += length;
    }
}

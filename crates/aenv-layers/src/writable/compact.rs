//! Replacing a long log by the runs that it amounts to.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::create::index_header;
use super::{IndexUsage, State, WritableLayer};
use crate::error::{LayerError, Operation};
use crate::index::{serialise, Entry};
use crate::limits::{BLOCK_SIZE, SECTOR_SIZE};
use crate::lsmt::{Superblock, Watermark};
use crate::storage::{failed, FileHandle};

/// A log below this many records is never worth the work.
const MIN_RECORDS: u64 = (1 << 20) / Entry::SIZE as u64;

impl IndexUsage {
    /// Whether compaction would save enough to be worth the pause.
    pub fn is_worth_compacting(self) -> bool {
        self.records > MIN_RECORDS && self.records > 4 * self.runs
    }
}

impl WritableLayer {
    /// Writes the index anew, sorted and without what was replaced. Reads and writes wait meanwhile.
    pub fn compact_index(&self) -> Result<(), LayerError> {
        // Most of the data is written out before anybody has to wait.
        self.flush()?;
        let mut marks = self.marks();
        let _gate = self.enter_alone();
        self.check_not_failed()?;
        let mut guard = self.state_mut();
        let state = &mut *guard;
        // The new file is believed as a whole, so that all data must be durable before it.
        self.sync_or_fail(|| self.data.sync())?;
        let bytes = self.compacted_records(state);
        let index_length = BLOCK_SIZE + bytes.len() as u64;
        let sequence = marks.sequence.saturating_add(1);
        // The new file is synced as a whole before it has its name.
        let mark = Watermark::of_durable(sequence, index_length, state.recorded_end * SECTOR_SIZE, self.boot);
        let index = self.write_replacement(&mark, &bytes)?;
        self.publish_replacement()?;
        state.index = index;
        state.index_length = index_length;
        state.checksum = 0;
        state.dead.superseded_by(index_length);
        marks.sequence = mark.sequence;
        marks.confirmed = index_length;
        // Space is given back only after a flush that covers the new file.
        marks.durable = 0;
        self.is_dirty.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn compacted_records(&self, state: &State) -> Vec<u8> {
        let runs = state.tree.iter().map(|run| match run.is_zeroed() {
            true => Entry::zeroed(run.start(), run.length(), state.recorded_end),
            false => run,
        });
        serialise(&crate::index::join_neighbours(runs))
    }

    fn replacement_name(&self) -> String {
        format!("{}.new", self.location.index)
    }

    fn write_replacement(&self, mark: &Watermark, bytes: &[u8]) -> Result<FileHandle, LayerError> {
        let directory = &self.location.directory;
        let name = self.replacement_name();
        match directory.remove(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(&self.name, Operation::Remove, 0, error));
            }
            _ => {}
        }
        let file =
            directory.create(&name).map_err(|error| failed(&self.name, Operation::Create, 0, error))?;
        let file = FileHandle::new(Arc::clone(&self.name), file);
        let superblock =
            Superblock { virtual_size: self.stored_size.load(Ordering::Acquire), ..self.identity.clone() };
        let outcome = file
            .write_all(0, &index_header(&superblock, mark))
            .and_then(|()| file.write_all(BLOCK_SIZE, bytes))
            .and_then(|()| file.sync());
        if outcome.is_err() {
            // The first failure is the one to report; the next compaction removes the file too.
            let _ = directory.remove(&name);
        }
        outcome.map(|()| file)
    }

    /// Renames the new file over the old. When that fails, which of the two the name means is unknown.
    fn publish_replacement(&self) -> Result<(), LayerError> {
        let directory = &self.location.directory;
        let published = directory
            .rename(&self.replacement_name(), &self.location.index)
            .map_err(|error| failed(&self.name, Operation::Rename, 0, error))
            .and_then(|()| directory.sync().map_err(|error| failed(&self.name, Operation::Sync, 0, error)));
        published.inspect_err(|_| self.fail())
    }
}

//! Turning a writable layer into a sealed one: an index and a trailer behind the data, which stays where it is.

use std::sync::atomic::Ordering;

use super::WritableLayer;
use crate::commit::{copy_entries, Watcher};
use crate::error::{LayerError, Operation};
use crate::index::{join_neighbours, serialise, Entry};
use crate::limits::{MAX_ENTRIES_PER_LAYER, SECTOR_SIZE};
use crate::lsmt::{Role, Superblock};
use crate::sealed::SealedLayer;
use crate::storage::failed;
use crate::writer::{LayerSummary, LayerWriter, NewSealed, Sink};

impl WritableLayer {
    /// Takes no more writes from now on. Those under way are complete when this returns.
    pub fn freeze(&self) {
        let _gate = self.enter_alone();
        self.is_frozen.store(true, Ordering::Release);
    }

    /// Freezes the layer and seals its data file in place, durably. No data is copied.
    ///
    /// The pair stays valid: until the sealed file has its new name durably, a crash leaves either form. A failure
    /// leaves the layer frozen and readable, and sealing can be tried again.
    pub fn seal(&self) -> Result<SealedLayer, LayerError> {
        self.freeze();
        let _marks = self.marks();
        self.check_not_failed()?;
        let data_end = self.data_end.load(Ordering::Acquire);
        let entries = self.sealed_entries(data_end);
        LayerError::limit(
            &self.name,
            "number of index entries",
            entries.len() as u64,
            MAX_ENTRIES_PER_LAYER,
        )?;
        let trailer = Superblock {
            index_offset: data_end * SECTOR_SIZE,
            index_entries: entries.len() as u64,
            virtual_size: self.stored_size.load(Ordering::Acquire),
            is_sparse: false,
            ..self.identity.clone()
        };
        let mut end = serialise(&entries);
        end.resize(end.len().next_multiple_of(SECTOR_SIZE as usize), 0);
        end.extend(trailer.to_block(Role::Trailer));
        self.data.write_all(trailer.index_offset, &end)?;
        // The trailer is found from the end of the file.
        self.data.set_length(trailer.index_offset + end.len() as u64)?;
        self.sync_or_fail(|| self.data.sync())?;
        Ok(SealedLayer::from_parts(self.data.reader.clone(), trailer, entries))
    }

    /// Seals the layer and gives the data file its new name, durably; the index file is removed.
    pub fn seal_as(&self, name: &str) -> Result<SealedLayer, LayerError> {
        let sealed = self.seal()?;
        let directory = &self.location.directory;
        directory
            .rename(&self.location.data, name)
            .map_err(|error| failed(&self.name, Operation::Rename, 0, error))?;
        directory.sync().map_err(|error| failed(&self.name, Operation::Sync, 0, error))?;
        directory
            .remove(&self.location.index)
            .map_err(|error| failed(&self.name, Operation::Remove, 0, error))?;
        Ok(sealed)
    }

    /// Copies the content of this layer alone into a new sealed layer, compacted. Writes wait meanwhile.
    pub fn commit(
        &self,
        new: NewSealed,
        sink: &mut dyn Sink,
        watcher: Watcher<'_>,
    ) -> Result<LayerSummary, LayerError> {
        let _gate = self.enter_alone();
        let runs: Vec<Entry> = self.state().tree.iter().collect();
        let read = |run: Entry, bytes: &mut [u8]| self.data.read_exact(run.target() * SECTOR_SIZE, bytes);
        copy_entries(runs.into_iter(), read, LayerWriter::new(new, sink)?, watcher)
    }

    fn sealed_entries(&self, data_end: u64) -> Vec<Entry> {
        let state = self.state();
        join_neighbours(state.tree.iter().map(|run| match run.is_zeroed() {
            true => Entry::zeroed(run.start(), run.length(), data_end),
            false => run,
        }))
    }
}

//! Making writes durable: data, then a mark that says how far the log may be believed, then the log.

use std::sync::atomic::Ordering;

use super::{Marks, WritableLayer};
use crate::error::LayerError;
use crate::limits::SECTOR_SIZE;
use crate::lsmt::Watermark;
use crate::storage::FileHandle;

impl WritableLayer {
    /// Makes everything durable that was acknowledged before the call. Calls that wait share one pass.
    pub fn flush(&self) -> Result<(), LayerError> {
        let seen = self.flushes_begun.load(Ordering::SeqCst);
        let mut marks = self.marks();
        if marks.completed > seen {
            // A pass began after we came, and it succeeded.
            return Ok(());
        }
        self.flush_alone(&mut marks, false)
    }

    /// Takes no more writes, flushes, and marks the layer as closed, so that other programs may go on with it.
    pub fn close(&self) -> Result<(), LayerError> {
        self.freeze();
        let mut marks = self.marks();
        // Twice, so that the mark that stays knows that all records were durable before it.
        self.flush_alone(&mut marks, false)?;
        self.is_dirty.store(true, Ordering::SeqCst);
        self.flush_alone(&mut marks, true)
    }

    pub(super) fn flush_alone(&self, marks: &mut Marks, is_closed: bool) -> Result<(), LayerError> {
        self.check_not_failed()?;
        let number = self.flushes_begun.fetch_add(1, Ordering::SeqCst) + 1;
        // Cleared before anything is looked at: a write that comes later sets it again.
        if self.is_dirty.swap(false, Ordering::SeqCst) {
            let outcome = self.write_out(marks, is_closed);
            if outcome.is_err() {
                self.is_dirty.store(true, Ordering::SeqCst);
                return outcome;
            }
        }
        marks.completed = number;
        Ok(())
    }

    fn write_out(&self, marks: &mut Marks, is_closed: bool) -> Result<(), LayerError> {
        let (index, mark) = {
            let mut state = self.state_mut();
            let mark = Watermark {
                sequence: marks.sequence.saturating_add(1),
                index_length: state.index_length,
                confirmed_length: marks.confirmed,
                records_checksum: std::mem::take(&mut state.checksum),
                data_length: state.recorded_end * SECTOR_SIZE,
                boot: self.boot,
                is_closed,
            };
            (state.index.clone(), mark)
        };
        if let Err(error) = self.write_out_mark(&index, &mark) {
            self.take_back(&mark);
            return Err(error);
        }
        marks.sequence = mark.sequence;
        marks.confirmed = mark.index_length;
        marks.durable = mark.index_length;
        Ok(())
    }

    fn write_out_mark(&self, index: &FileHandle, mark: &Watermark) -> Result<(), LayerError> {
        self.sync_or_fail(|| self.data.sync())?;
        index.write_all(mark.slot_offset(), &mark.to_slot())?;
        self.sync_or_fail(|| index.sync())
    }

    /// After a failure the next mark has to cover the records of this one as well.
    fn take_back(&self, mark: &Watermark) {
        let mut state = self.state_mut();
        let later = (state.index_length - mark.index_length) as usize;
        state.checksum = crc32c::crc32c_combine(mark.records_checksum, state.checksum, later);
    }

    /// After a failed sync the kernel may have dropped the pages and call the next one a success: never try again.
    pub(super) fn sync_or_fail(
        &self,
        sync: impl FnOnce() -> Result<(), LayerError>,
    ) -> Result<(), LayerError> {
        sync().inspect_err(|_| self.fail())
    }
}

//! Watches the reads of layers for a while. Off, it costs a look at one flag per read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aenv_layers::ReadAt;

use super::format::{Trace, TraceRecord};

/// More reads than this are no longer the start of a guest.
const MAX_RECORDS: usize = 1 << 16;

/// Collects the reads of the layers that it watches.
#[derive(Default)]
pub struct Recorder {
    is_on: AtomicBool,
    records: Mutex<Vec<TraceRecord>>,
}

impl Recorder {
    /// Begins to record, anew.
    pub fn start(&self) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.is_on.store(true, Ordering::Release);
    }

    /// Ends recording, and returns what was read first.
    pub fn finish(&self) -> Trace {
        self.is_on.store(false, Ordering::Release);
        let records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        Trace { records }
    }

    /// The same bytes; reads of them are recorded as reads of this layer.
    pub fn watch(self: &Arc<Self>, layer: u32, source: Arc<dyn ReadAt>) -> Arc<dyn ReadAt> {
        Arc::new(Watched { recorder: Arc::clone(self), layer, source })
    }

    fn note(&self, record: TraceRecord) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // A read in several parts is one read.
        let last = records.last_mut();
        let last =
            last.filter(|last| last.layer == record.layer && last.offset + last.length == record.offset);
        if let Some(last) = last {
            last.length += record.length;
        } else if records.len() < MAX_RECORDS {
            records.push(record);
        } else {
            self.is_on.store(false, Ordering::Release);
        }
    }
}

struct Watched {
    recorder: Arc<Recorder>,
    layer: u32,
    source: Arc<dyn ReadAt>,
}

impl ReadAt for Watched {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read_at(offset, buffer)?;
        if count > 0 && self.recorder.is_on.load(Ordering::Acquire) {
            self.recorder.note(TraceRecord { layer: self.layer, offset, length: count as u64 });
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        self.source.length()
    }

    fn evict(&self, offset: u64, length: u64) {
        self.source.evict(offset, length);
    }
}

#[cfg(test)]
mod tests {
    use aenv_layers::Memory;

    use super::*;

    #[test]
    fn reads_are_recorded_while_it_is_on() {
        let recorder = Arc::new(Recorder::default());
        let source = recorder.watch(3, Arc::new(Memory::new(vec![0; 100])));
        let read = |offset| source.read_at(offset, &mut [0; 10]).unwrap();
        read(0);
        recorder.start();
        read(50);
        read(60);
        read(95);
        read(100);
        let records = recorder.finish().records;
        read(0);
        let record = |offset, length| TraceRecord { layer: 3, offset, length };
        assert_eq!(records, [record(50, 20), record(95, 5)]);
        assert_eq!(recorder.finish(), Trace::default());
    }
}

//! Reads what a trace names, so that it is in the cache before a guest asks. Errors are counted and nothing more.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use aenv_layers::ReadAt;

use super::format::TraceRecord;
use crate::gate::in_background;

/// How reads are fetched ahead.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchOptions {
    /// How many requests are under way at once.
    pub concurrency: usize,
    /// Reads that follow each other are merged up to this size.
    pub merge_bytes: u64,
    /// Reads with a smaller gap than this between them count as following each other.
    pub gap_bytes: u64,
}

impl Default for PrefetchOptions {
    fn default() -> Self {
        Self { concurrency: 4, merge_bytes: 1 << 20, gap_bytes: 64 << 10 }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetched {
    /// Bytes that were read.
    pub bytes: u64,
    /// Reads that failed, or that name no layer.
    pub failures: u64,
}

/// Reads the records from the sources, which are those of the stack from the bottom. Steps back behind all other reads.
/// Returns when everything was read, or soon after `is_cancelled` is set.
pub fn prefetch(
    sources: &[Arc<dyn ReadAt>],
    records: &[TraceRecord],
    options: PrefetchOptions,
    is_cancelled: &AtomicBool,
) -> Prefetched {
    let reads = merge(records, options);
    let (next, bytes, failures) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut buffer = Vec::new();
        while let Some(read) = reads.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_cancelled.load(Ordering::Acquire) {
                return;
            }
            match fetch(sources, *read, options.merge_bytes, &mut buffer) {
                Some(count) => bytes.fetch_add(count, Ordering::Relaxed),
                None => failures.fetch_add(1, Ordering::Relaxed),
            };
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.concurrency.clamp(1, reads.len().max(1)) {
            scope.spawn(|| in_background(work));
        }
    });
    Prefetched { bytes: bytes.into_inner(), failures: failures.into_inner() }
}

fn fetch(sources: &[Arc<dyn ReadAt>], read: TraceRecord, most: u64, buffer: &mut Vec<u8>) -> Option<u64> {
    let source = sources.get(read.layer as usize)?;
    let end = (read.offset + read.length).min(source.length().ok()?);
    let mut at = read.offset;
    while at < end {
        // A record may claim any length; the buffer stays as small as a merged read.
        buffer.resize((end - at).min(most.max(1)) as usize, 0);
        match source.read_at(at, buffer).ok()? {
            0 => return None,
            count => at += count as u64,
        }
    }
    Some(at.saturating_sub(read.offset))
}

/// Joins reads that follow each other in time and in place. The order stays: what was wanted first comes first.
fn merge(records: &[TraceRecord], options: PrefetchOptions) -> Vec<TraceRecord> {
    let mut merged: Vec<TraceRecord> = Vec::new();
    for record in records.iter().filter(|record| record.length > 0) {
        let end = record.offset + record.length;
        if let Some(last) = merged.last_mut() {
            let last_end = last.offset + last.length;
            let is_next = last.layer == record.layer
                && record.offset >= last.offset
                && record.offset <= last_end.saturating_add(options.gap_bytes);
            if is_next && end.max(last_end) - last.offset <= options.merge_bytes {
                last.length = end.max(last_end) - last.offset;
                continue;
            }
        }
        merged.push(*record);
    }
    merged
}

#[cfg(test)]
mod tests {
    use aenv_layers::Memory;

    use super::*;

    const OPTIONS: PrefetchOptions = PrefetchOptions { concurrency: 2, merge_bytes: 100, gap_bytes: 10 };

    fn record(layer: u32, offset: u64, length: u64) -> TraceRecord {
        TraceRecord { layer, offset, length }
    }

    #[test]
    fn neighbours_are_merged_in_order() {
        let records = [
            record(1, 50, 10),
            record(1, 60, 10),
            record(1, 55, 2),
            record(1, 80, 10),
            record(2, 90, 10),
            record(2, 111, 1),
            record(2, 105, 1),
            record(2, 112, 0),
            record(2, 106, 100),
            record(2, 206, 1),
        ];
        let merged = merge(&records, OPTIONS);
        let expected = [
            record(1, 50, 40),
            record(2, 90, 10),
            record(2, 111, 1),
            record(2, 105, 1),
            record(2, 106, 100),
            record(2, 206, 1),
        ];
        assert_eq!(merged, expected);
    }

    #[test]
    fn everything_is_read_and_nonsense_counted() {
        let source: Arc<dyn ReadAt> = Arc::new(Memory::new(vec![0; 1000]));
        let records = [record(0, 0, 500), record(0, 900, 1 << 60), record(7, 0, 1), record(0, 5000, 1)];
        let outcome = prefetch(&[Arc::clone(&source)], &records, OPTIONS, &AtomicBool::new(false));
        assert_eq!(outcome, Prefetched { bytes: 600, failures: 1 });
        let outcome = prefetch(&[source], &records, OPTIONS, &AtomicBool::new(true));
        assert_eq!(outcome, Prefetched::default());
    }
}

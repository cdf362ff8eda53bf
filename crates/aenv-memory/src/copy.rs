//! Copying pages of a process into a layer.

use std::ops::ControlFlow;

use aenv_layers::{
    LayerError, LayerSummary, LayerWriter, NewSealed, Sink, Stack, View, MAX_ENTRIES_PER_LAYER, SECTOR_SIZE,
};

use crate::classify::{split, Below, Kind};
use crate::error::MemoryError;
use crate::process::{Process, Region};
use crate::runs::{PageRun, Pages, PAGE_SIZE};

/// Hears after every step how many more bytes were read, and may end the work.
pub type Watcher<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Memory of a process.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Who has it: the monitor, or a frozen copy of it.
    pub process: &'a Process,
    /// Where.
    pub region: Region,
}

/// What the new layer will stand on.
#[derive(Clone, Copy)]
pub enum Base<'a> {
    /// Nothing: pages of zeros need not be mentioned.
    Nothing,
    /// Layers from which every page that is copied may differ.
    Layers,
    /// Layers with which every page is compared: what is the same is left out.
    Compared(&'a Stack),
}

/// Pages that are read at a time.
const BATCH_PAGES: u64 = 256;
const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE;

/// Writes the pages into a layer in `sink`. Whoever owns the memory must not change it meanwhile.
pub(crate) fn copy(
    source: Source<'_>,
    pages: &Pages,
    base: Base<'_>,
    new: NewSealed,
    sink: &mut dyn Sink,
    watcher: Watcher<'_>,
) -> Result<LayerSummary, MemoryError> {
    let name = sink.name().clone();
    let runs = pages.bridged();
    let shortest = shortest_run(runs.iter().map(|run| run.count).sum());
    let mut writer = LayerWriter::new(new, sink)?;
    let mut buffer = vec![0; (BATCH_PAGES * PAGE_SIZE) as usize];
    let mut below = Vec::new();
    for batch in batches(&runs) {
        let count: u64 = batch.iter().map(|run| run.count).sum();
        let mut bytes = &mut buffer[..(count * PAGE_SIZE) as usize];
        source.process.gather(source.region, &batch, bytes)?;
        for run in batch {
            let (page_bytes, rest) = bytes.split_at_mut((run.count * PAGE_SIZE) as usize);
            let below = read_below(base, run, &mut below)?;
            write_run(&mut writer, run.first, page_bytes, below, shortest)?;
            bytes = rest;
        }
        if watcher(count * PAGE_SIZE).is_break() {
            return Err(LayerError::Cancelled { layer: name }.into());
        }
    }
    // What was read is the truth only if the number still belongs to the same process.
    source.process.check_identity()?;
    Ok(writer.finish()?)
}

/// How long a run within data must be to be worth an entry, so that with the runs themselves the index stays within
/// its limit: half of it is for runs, and runs of one kind alternate with others.
fn shortest_run(pages: u64) -> u64 {
    (4 * pages).div_ceil(MAX_ENTRIES_PER_LAYER).saturating_sub(1).clamp(1, BATCH_PAGES)
}

/// Groups runs, and parts of them, so that each group fits the buffer.
fn batches(runs: &[PageRun]) -> impl Iterator<Item = Vec<PageRun>> + '_ {
    let mut rest = runs.iter().copied();
    let mut next = rest.next();
    std::iter::from_fn(move || {
        let mut batch = Vec::new();
        let mut room = BATCH_PAGES;
        while let Some(run) = next.filter(|_| room > 0) {
            let count = run.count.min(room);
            batch.push(PageRun { first: run.first, count });
            room -= count;
            let left = PageRun { first: run.first + count, count: run.count - count };
            next = if left.count > 0 { Some(left) } else { rest.next() };
        }
        (!batch.is_empty()).then_some(batch)
    })
}

fn read_below<'a>(base: Base<'_>, run: PageRun, buffer: &'a mut Vec<u8>) -> Result<Below<'a>, MemoryError> {
    let stack = match base {
        Base::Nothing => return Ok(Below::Nothing),
        Base::Layers => return Ok(Below::Unknown),
        Base::Compared(stack) => stack,
    };
    let length = run.count * PAGE_SIZE;
    buffer.clear();
    buffer.resize(length as usize, 0);
    let offset = run.first * PAGE_SIZE;
    // What lies behind the end of the layers reads as zeros.
    let visible = stack.size().saturating_sub(offset).min(length) as usize;
    stack.read(offset, &mut buffer[..visible])?;
    Ok(Below::Known(buffer))
}

fn write_run(
    writer: &mut LayerWriter<'_>,
    first: u64,
    bytes: &[u8],
    below: Below<'_>,
    shortest: u64,
) -> Result<(), MemoryError> {
    let mut page = first;
    let mut rest = bytes;
    for (kind, count) in split(bytes, below, shortest) {
        let (run, behind) = rest.split_at((count * PAGE_SIZE) as usize);
        match kind {
            Kind::Data => writer.data(page * SECTORS, run)?,
            Kind::Zeroed => writer.zeroed(page * SECTORS, count * SECTORS)?,
            Kind::Same => {}
        }
        page += count;
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_batches_take_all_pages_once_and_fit_the_buffer() {
        let runs = [(0, 1), (5, 600), (700, 2), (800, 90)].map(|(first, count)| PageRun { first, count });
        let groups: Vec<_> = batches(&runs).collect();
        assert!(groups.iter().all(|group| group.iter().map(|run| run.count).sum::<u64>() <= BATCH_PAGES));
        let joined: Pages = groups.into_iter().flatten().collect();
        assert_eq!(joined.runs(), runs);
        assert_eq!(batches(&[]).count(), 0);
    }

    #[test]
    fn test_runs_must_be_longer_the_more_pages_there_are() {
        assert_eq!(shortest_run(0), 1);
        assert_eq!(shortest_run(500_000), 1);
        for pages in [500_001, 4_000_000, 60_000_000] {
            assert!(2 * pages / (shortest_run(pages) + 1) <= MAX_ENTRIES_PER_LAYER / 2, "{pages}");
        }
    }
}

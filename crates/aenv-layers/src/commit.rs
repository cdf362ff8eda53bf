//! Copying the content of layers into a new sealed layer.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::LayerError;
use crate::index::Entry;
use crate::limits::SECTOR_SIZE;
use crate::stack::Stack;
use crate::view::{Content, Piece, View};
use crate::writer::{LayerSummary, LayerWriter, NewSealed, Sink};

/// Hears after every step how many more bytes were read, and may end the work.
pub type Watcher<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Bytes that are read at a time.
pub(crate) const COPY_SIZE: usize = 1 << 20;

/// Copies the pieces of a view that are not holes.
///
/// The view must not change meanwhile. Pieces in ascending order; see `bridge_gaps` when there are too many of them.
pub fn commit(
    view: &dyn View,
    pieces: &[Piece],
    new: NewSealed,
    sink: &mut dyn Sink,
    watcher: Watcher<'_>,
) -> Result<LayerSummary, LayerError> {
    let mut writer = LayerWriter::new(new, sink)?;
    let mut buffer = vec![0; COPY_SIZE];
    for piece in pieces {
        match piece.content {
            Content::Hole => {}
            Content::Zeroed => writer.zeroed(piece.extent.start, piece.extent.length)?,
            Content::Data => {
                let mut at = piece.extent.start;
                while at < piece.extent.end() {
                    let bytes = take(&mut buffer, piece.extent.end() - at);
                    view.read(at * SECTOR_SIZE, bytes)?;
                    report(watcher, view.name(), bytes.len())?;
                    writer.data(at, bytes)?;
                    at += bytes.len() as u64 / SECTOR_SIZE;
                }
            }
        }
    }
    writer.finish()
}

/// Merges a stack, or the part of one that it was made of, into one layer that can take its place.
///
/// Runs of zeros are kept, because the result may stand on other layers. The virtual size is that of `new`.
pub fn flatten(
    stack: &Stack,
    new: NewSealed,
    sink: &mut dyn Sink,
    watcher: Watcher<'_>,
) -> Result<LayerSummary, LayerError> {
    let read = |entry: Entry, bytes: &mut [u8]| stack.layers()[entry.layer()].read_data(entry, bytes);
    copy_entries(stack.entries().iter().copied(), read, LayerWriter::new(new, sink)?, watcher)
}

/// Copies the runs of an index, however far they reach.
pub(crate) fn copy_entries(
    entries: impl Iterator<Item = Entry>,
    read: impl Fn(Entry, &mut [u8]) -> Result<(), LayerError>,
    mut writer: LayerWriter<'_>,
    watcher: Watcher<'_>,
) -> Result<LayerSummary, LayerError> {
    let mut buffer = vec![0; COPY_SIZE];
    let name = Arc::clone(writer.name());
    for entry in entries {
        if entry.is_zeroed() {
            writer.zeroed(entry.start(), entry.length())?;
            continue;
        }
        let mut at = entry.start();
        while at < entry.end() {
            let bytes = take(&mut buffer, entry.end() - at);
            read(entry.clipped(at, u64::MAX), bytes)?;
            report(watcher, &name, bytes.len())?;
            writer.data(at, bytes)?;
            at += bytes.len() as u64 / SECTOR_SIZE;
        }
    }
    writer.finish()
}

fn take(buffer: &mut [u8], sectors: u64) -> &mut [u8] {
    let length = (buffer.len() as u64).min(sectors.saturating_mul(SECTOR_SIZE)) as usize;
    &mut buffer[..length]
}

pub(crate) fn report(watcher: Watcher<'_>, layer: &Arc<str>, bytes: usize) -> Result<(), LayerError> {
    match watcher(bytes as u64) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(LayerError::Cancelled { layer: Arc::clone(layer) }),
    }
}

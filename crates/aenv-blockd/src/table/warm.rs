//! The verbs `record` and `prefetch`: which bytes a machine needs first, and having them ready.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aenv_sources::in_background;

use super::open::check_path;
use super::open_image::OpenImage;
use super::Table;
use crate::image::{ImageName, Range, READ_MARGIN};
use crate::log;
use crate::refusal::Refusal;
use crate::trace;

/// Bytes that are read and put into the page cache at once.
const STEP: u64 = 1 << 20;
/// The longest recording.
const MAX_RECORDING: Duration = Duration::from_secs(600);

/// What to have ready.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// These bytes.
    Ranges(Vec<Range>),
    /// Those of a recording.
    Trace(PathBuf),
}

/// What became ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefetched {
    /// Bytes that were read from the layers.
    pub(crate) read_bytes: u64,
    /// Bytes of them that are now in the page cache of the file.
    pub(crate) cached_bytes: u64,
}

impl Table {
    /// Reads bytes of an image, so that they are on this host, and in the page cache of its file if somebody has
    /// opened that.
    pub(crate) fn prefetch(&self, name: &ImageName, wanted: Wanted) -> Result<Prefetched, Refusal> {
        let open = self.get(name)?;
        let ranges = match wanted {
            Wanted::Ranges(ranges) => ranges,
            Wanted::Trace(path) => {
                check_path(&path)?;
                trace::read(&path)?
            }
        };
        let mut buffer = vec![0; STEP as usize + READ_MARGIN];
        let mut done = Prefetched::default();
        // Guests that wait for bytes of their own go first.
        in_background(|| {
            ranges.into_iter().try_for_each(|range| self.prefetch_range(&open, range, &mut buffer, &mut done))
        })?;
        Ok(done)
    }

    fn prefetch_range(
        &self,
        open: &OpenImage,
        range: Range,
        buffer: &mut [u8],
        done: &mut Prefetched,
    ) -> Result<(), Refusal> {
        let content = open.content()?;
        // The page cache takes whole pages.
        let mut at = range.offset / 4096 * 4096;
        let end = range.offset.saturating_add(range.length).min(content.size());
        while at < end {
            let length = STEP.min(end - at).next_multiple_of(4096) as usize;
            let bytes = content.read(at, length, buffer).map_err(|error| Refusal::Unreadable {
                image: open.image.name().clone(),
                reason: log::chain(&error),
            })?;
            done.read_bytes += bytes.len() as u64;
            if self.exporter.populate(&open.image, at, bytes) {
                done.cached_bytes += bytes.len() as u64;
            }
            at += length as u64;
        }
        Ok(())
    }

    /// Writes down the first reads from now on. The file is there when the time is over.
    pub(crate) fn record(
        self: &Arc<Self>,
        name: &ImageName,
        path: &Path,
        duration: Duration,
    ) -> Result<(), Refusal> {
        check_path(path)?;
        if duration.is_zero() || duration > MAX_RECORDING {
            return Err(Refusal::argument("a recording takes 1 to 600 seconds"));
        }
        let open = self.get(name)?;
        if !open.image.recorder.start() {
            // Asked again, or by two: the one under way goes on.
            return Ok(());
        }
        let (image, path) = (Arc::clone(&open.image), path.to_owned());
        let spawned = thread::Builder::new().name("record".into()).spawn(move || {
            thread::sleep(duration);
            let ranges = image.recorder.finish();
            let facts: [(&str, &dyn log::Fact); 2] =
                [("image", &image.name().as_str()), ("ranges", &(ranges.len() as u64))];
            match trace::write(&path, &ranges) {
                Ok(()) => log::info("reads_recorded", &facts),
                Err(refusal) => log::error(
                    "recording_not_written",
                    &[facts[0], facts[1], ("reason", &refusal.sentence())],
                ),
            }
        });
        spawned.map(drop).map_err(|_| {
            drop(open.image.recorder.finish());
            Refusal::TooMany("there are no threads left to record with")
        })
    }
}

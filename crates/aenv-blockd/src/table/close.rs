//! The verb `close`.

use std::sync::Arc;
use std::time::Duration;

use super::journal::Change;
use super::open_image::OpenImage;
use super::{pair, Table};
use crate::image::{Content, Description, ImageName};
use crate::log;
use crate::refusal::Refusal;

/// The kernel tells of a closed file a moment after its user went on.
const RELEASE_PATIENCE: Duration = Duration::from_millis(500);

/// How to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseMode {
    /// The writable layer goes too.
    pub(crate) discards: bool,
    /// Processes that have the image open get errors, and so does nobody else.
    pub(crate) is_forced: bool,
}

impl Table {
    /// Closes an image. Says whether it was open.
    pub(crate) fn close(self: &Arc<Self>, name: &ImageName, mode: CloseMode) -> Result<bool, Refusal> {
        let _changing = self.changing.lock(name);
        let Some(open) = self.find(name) else { return Ok(false) };
        self.write_out(&open, mode)?;
        self.exporter
            .withdraw(&open.image, mode.is_forced)
            .map_err(|in_use| Refusal::ImageInUse { image: name.clone(), users: in_use.users })?;
        if !mode.discards {
            self.end_writing(&open, mode)?;
        }
        let description = open.image.description();
        if mode.discards && description.writable.is_some() {
            self.redescribe(&open, |now| Description { is_discarded: true, ..now.clone() })?;
        }
        self.finish_close(&description, mode.discards)?;
        self.change().remove(name);
        log::info("image_closed", &[("image", &name.as_str()), ("serial", &open.image.serial())]);
        Ok(true)
    }

    /// The last steps, which the next program repeats if this one dies between them.
    pub(super) fn finish_close(&self, description: &Description, discards: bool) -> Result<(), Refusal> {
        if discards {
            description.directories().try_for_each(|directory| pair::remove(directory))?;
        }
        self.journal.commit(Change::Drop(description.name().clone()))?;
        description.directories().for_each(|directory| self.claims.release(directory));
        Ok(())
    }

    /// What can fail for long comes first, while the image is still whole.
    fn write_out(self: &Arc<Self>, open: &Arc<OpenImage>, mode: CloseMode) -> Result<(), Refusal> {
        let patience = if mode.is_forced { Duration::ZERO } else { RELEASE_PATIENCE };
        let users = self.exporter.wait_unused(&open.image, patience);
        if users > 0 && !mode.is_forced {
            return Err(Refusal::ImageInUse { image: open.image.name().clone(), users });
        }
        let outcome = match open.content() {
            // An image without bytes has nothing to write out.
            Err(_) => return Ok(()),
            Ok(Content::Sealed(_) | Content::Plain(_)) => return Ok(()),
            Ok(Content::Writable(disk)) => {
                // A seal that somebody was promised is done even when the rest is thrown away.
                self.start_sealing(open);
                open.seals.wait(None).and_then(|()| match mode.discards {
                    true => Ok(()),
                    false => disk.disk().flush().map_err(Refusal::Layer),
                })
            }
        };
        forgive(outcome, open, mode)
    }

    fn end_writing(&self, open: &OpenImage, mode: CloseMode) -> Result<(), Refusal> {
        match open.content() {
            Ok(Content::Writable(disk)) => {
                forgive(disk.disk().top().close().map_err(Refusal::Layer), open, mode)
            }
            _ => Ok(()),
        }
    }
}

fn forgive(outcome: Result<(), Refusal>, open: &OpenImage, mode: CloseMode) -> Result<(), Refusal> {
    match outcome {
        Err(error) if mode.is_forced => {
            let reason = error.sentence();
            log::error(
                "image_not_written_out",
                &[("image", &open.image.name().as_str()), ("reason", &reason)],
            );
            Ok(())
        }
        outcome => outcome,
    }
}

//! What nobody asks for: writes become durable after a while, logs are shortened, dead space is given back.

use super::open_image::OpenImage;
use super::Table;
use crate::image::Content;
use crate::log;

impl Table {
    /// Looks after every disk once. Monitors may never flush; without this, a crash of the host would cost everything.
    pub(crate) fn look_after_disks(&self) {
        for open in self.all() {
            if let Some(Ok(Content::Writable(disk))) = open.image.content_nowait() {
                let disk = disk.disk();
                note(&open, "flush", disk.flush());
                let top = disk.top();
                if top.index_usage().is_worth_compacting() {
                    note(&open, "compact", top.compact_index());
                }
                note(&open, "reclaim", top.reclaim().map(drop));
            }
        }
    }

    /// Makes everything durable that was written or fetched.
    pub(crate) fn flush_all(&self) {
        self.layers.checkpoint();
        for open in self.all() {
            if let Some(Ok(content)) = open.image.content_nowait() {
                if let Err(error) = content.flush() {
                    let reason = log::chain(&error);
                    let name = open.image.name().as_str();
                    log::error("image_not_written_out", &[("image", &name), ("reason", &reason)]);
                }
            }
        }
    }
}

fn note(open: &OpenImage, action: &str, outcome: Result<(), aenv_layers::LayerError>) {
    // A layer that was frozen or closed meanwhile is somebody else's care.
    let Err(error) = outcome else { return };
    if open.image.counters.count_error() {
        let (name, reason) = (open.image.name().as_str(), log::chain(&error));
        log::error("upkeep_failed", &[("image", &name), ("action", &action), ("reason", &reason)]);
    }
}

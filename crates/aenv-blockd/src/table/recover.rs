//! What the table says, made true again by a new program: images are shown at once, and their bytes follow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::journal::Change;
use super::open_image::OpenImage;
use super::Table;
use crate::image::{is_remote, Description, Image};
use crate::log;
use crate::refusal::Refusal;

/// Threads that put images together whose layers are on this host.
const LOCAL_LOADERS: usize = 4;
/// Threads that put images together whose layers are elsewhere.
const REMOTE_LOADERS: usize = 16;

impl Table {
    /// Shows all images of the table and starts to put them together.
    pub(crate) fn recover(self: &Arc<Self>) -> std::io::Result<()> {
        let (mut local, mut remote) = (VecDeque::new(), VecDeque::new());
        for description in self.journal.images() {
            if description.is_discarded {
                self.finish_discarding(&description);
                continue;
            }
            let is_remote = description.layers.iter().any(is_remote);
            let open = Arc::new(OpenImage::new(Image::new(description)));
            self.exporter.republish(&open.image);
            self.change().insert(open.image.name().clone(), Arc::clone(&open));
            if is_remote { &mut remote } else { &mut local }.push_back(open);
        }
        let images = (local.len() + remote.len()) as u64;
        if images > 0 {
            log::info("images_recovering", &[("images", &images)]);
        }
        self.load_all(local, LOCAL_LOADERS)?;
        self.load_all(remote, REMOTE_LOADERS)
    }

    fn finish_discarding(&self, description: &Description) {
        let name = description.name().as_str();
        match self.finish_close(description, true) {
            Ok(()) => log::info("image_discarded_late", &[("image", &name)]),
            Err(error) => {
                log::error("image_not_discarded", &[("image", &name), ("reason", &error.sentence())]);
            }
        }
    }

    fn load_all(self: &Arc<Self>, images: VecDeque<Arc<OpenImage>>, threads: usize) -> std::io::Result<()> {
        let threads = threads.min(images.len());
        let queue = Arc::new(Mutex::new(images));
        for _ in 0..threads {
            let (table, queue) = (Arc::clone(self), Arc::clone(&queue));
            thread::Builder::new().name("recover".into()).spawn(move || loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(open) = next else { return };
                table.load_one(&open);
            })?;
        }
        Ok(())
    }

    fn load_one(self: &Arc<Self>, open: &Arc<OpenImage>) {
        let name = open.image.name().as_str();
        match self.put_together(open) {
            Ok(()) => {
                log::info("image_recovered", &[("image", &name)]);
                self.start_sealing(open);
            }
            Err(error) => {
                let reason = error.sentence();
                log::error("image_unreadable", &[("image", &name), ("reason", &reason)]);
                open.image.settle(Err(reason));
            }
        }
    }

    fn put_together(&self, open: &OpenImage) -> Result<(), Refusal> {
        let description = open.image.description();
        let finished = self.finish_moved_seals(&description)?;
        if finished != *description {
            self.journal.commit(Change::Put(Box::new(finished.clone())))?;
            open.image.set_description(finished.clone());
        }
        let assembled = self.assemble_again(&finished)?;
        for (frozen, layer) in finished.frozen.iter().zip(assembled.frozen) {
            open.seals.add(frozen.clone(), layer, 0);
        }
        open.image.settle(Ok(assembled.content));
        Ok(())
    }
}

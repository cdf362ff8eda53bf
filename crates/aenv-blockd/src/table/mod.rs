//! The device table: which images are open, durably, and the verbs that change that. It moves no bytes of images and
//! does not know how they are shown to processes.

mod assemble;
mod close;
mod export;
mod journal;
mod keep;
mod names;
mod open;
mod open_image;
mod pair;
mod recover;
mod resize;
mod seal;
mod seals;
mod show;
mod warm;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aenv_layers::BootId;

use crate::export::Exporter;
use crate::image::{Description, ImageName};
use crate::layers::LayerStore;
use crate::refusal::Refusal;
pub(crate) use close::CloseMode;
pub(crate) use export::ExportOrder;
pub(crate) use journal::TableError;
use journal::{Change, Journal};
use names::NameLocks;
use open_image::OpenImage;
use pair::Claims;
pub(crate) use seal::SealOrder;
pub(crate) use warm::Wanted;

/// Images that may be open at once.
const MAX_IMAGES: usize = 16 << 10;

/// All open images.
pub(crate) struct Table {
    journal: Journal,
    images: RwLock<BTreeMap<ImageName, Arc<OpenImage>>>,
    changing: NameLocks,
    claims: Claims,
    layers: LayerStore,
    exporter: Arc<dyn Exporter>,
    boot: BootId,
}

impl Table {
    /// Reads the table. Its images are not there before `recover`.
    pub(crate) fn load(
        path: &Path,
        layers: LayerStore,
        exporter: Arc<dyn Exporter>,
        boot: BootId,
    ) -> Result<Self, TableError> {
        Ok(Self {
            journal: Journal::open(path)?,
            images: RwLock::default(),
            changing: NameLocks::default(),
            claims: Claims::default(),
            layers,
            exporter,
            boot,
        })
    }

    pub(crate) fn exporter(&self) -> &dyn Exporter {
        self.exporter.as_ref()
    }

    /// Brings into the layers what users of an image have written.
    fn collect_writes(&self, open: &OpenImage) -> Result<(), Refusal> {
        let path = self.exporter.path(&open.image);
        self.exporter.collect_writes(&open.image).map_err(Refusal::file("write out", &path))
    }

    fn get(&self, name: &ImageName) -> Result<Arc<OpenImage>, Refusal> {
        self.find(name).ok_or_else(|| Refusal::UnknownImage(name.clone()))
    }

    fn find(&self, name: &ImageName) -> Option<Arc<OpenImage>> {
        self.look().get(name).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.look().len()
    }

    /// All images at this moment.
    pub(crate) fn all(&self) -> Vec<Arc<OpenImage>> {
        self.look().values().cloned().collect()
    }

    /// Changes what an image consists of, first in the table, then in memory.
    fn redescribe(
        &self,
        open: &OpenImage,
        change: impl FnOnce(&Description) -> Description,
    ) -> Result<(), Refusal> {
        let _describing = open.describing.lock().unwrap_or_else(PoisonError::into_inner);
        let description = change(&open.image.description());
        self.journal.commit(Change::Put(Box::new(description.clone())))?;
        open.image.set_description(description);
        Ok(())
    }

    // Single insertions and removals: a panic elsewhere cannot leave half of one.
    fn look(&self) -> RwLockReadGuard<'_, BTreeMap<ImageName, Arc<OpenImage>>> {
        self.images.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, BTreeMap<ImageName, Arc<OpenImage>>> {
        self.images.write().unwrap_or_else(PoisonError::into_inner)
    }
}

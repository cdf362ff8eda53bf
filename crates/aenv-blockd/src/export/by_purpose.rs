//! Disks through one exporter, memory images through another: monitors map memory from regular files only.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Exporter, InUse, NotShown};
use crate::image::{Image, Use};

/// Chooses by what an image is for.
pub(crate) struct ByPurpose {
    /// Shows disks.
    pub(crate) disks: Arc<dyn Exporter>,
    /// Shows memory images.
    pub(crate) memory: Arc<dyn Exporter>,
}

impl ByPurpose {
    fn of(&self, image: &Image) -> &dyn Exporter {
        match image.purpose() {
            Use::Disk => self.disks.as_ref(),
            Use::Memory => self.memory.as_ref(),
        }
    }
}

impl Exporter for ByPurpose {
    fn kinds(&self) -> Vec<&'static str> {
        [self.memory.kinds(), self.disks.kinds()].concat()
    }

    fn path(&self, image: &Image) -> PathBuf {
        self.of(image).path(image)
    }

    fn publish(&self, image: &Arc<Image>) -> Result<(), NotShown> {
        self.of(image).publish(image)
    }

    fn republish(&self, image: &Arc<Image>) {
        self.of(image).republish(image);
    }

    fn await_shown(&self, image: &Image) -> Result<(), NotShown> {
        self.of(image).await_shown(image)
    }

    fn withdraw(&self, image: &Image, force: bool) -> Result<(), InUse> {
        self.of(image).withdraw(image, force)
    }

    fn users(&self, images: &[&Image]) -> Vec<usize> {
        let (disks, memory): (Vec<_>, Vec<_>) = images.iter().partition(|image| image.purpose() == Use::Disk);
        let mut of_disks = self.disks.users(&disks).into_iter();
        let mut of_memory = self.memory.users(&memory).into_iter();
        let next = |image: &&Image| match image.purpose() {
            Use::Disk => of_disks.next(),
            Use::Memory => of_memory.next(),
        };
        images.iter().map_while(next).collect()
    }

    fn can_grow(&self, image: &Image) -> bool {
        self.of(image).can_grow(image)
    }

    fn collect_writes(&self, image: &Image) -> io::Result<()> {
        self.of(image).collect_writes(image)
    }

    fn wait_unused(&self, image: &Image, patience: Duration) -> usize {
        self.of(image).wait_unused(image, patience)
    }

    fn announce_size(&self, image: &Image) {
        self.of(image).announce_size(image);
    }

    fn populate(&self, image: &Image, offset: u64, bytes: &[u8]) -> bool {
        self.of(image).populate(image, offset, bytes)
    }
}

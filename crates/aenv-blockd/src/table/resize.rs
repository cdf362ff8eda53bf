//! The verb `resize`.

use aenv_layers::View;

use super::Table;
use crate::image::ImageName;
use crate::log;
use crate::refusal::Refusal;

impl Table {
    /// Grows a disk; what is new reads as zeros. Durable in the headers of its writable layer when this returns.
    pub(crate) fn resize(&self, name: &ImageName, size_bytes: u64) -> Result<(), Refusal> {
        let _changing = self.changing.lock(name);
        let open = self.get(name)?;
        let disk = open.writable()?.disk();
        if size_bytes != disk.size() && !self.exporter.can_grow(&open.image) {
            return Err(Refusal::FixedSize(name.clone()));
        }
        disk.grow(size_bytes)?;
        self.exporter.announce_size(&open.image);
        log::info("image_resized", &[("image", &name.as_str()), ("size_bytes", &size_bytes)]);
        Ok(())
    }
}

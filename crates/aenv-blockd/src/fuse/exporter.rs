//! Images as files of the mount.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use zerocopy::IntoBytes;

use super::abi::{notice, InvalidateName, InvalidateNode, StoreOut, ROOT};
use super::device::Device;
use super::nodes::Nodes;
use crate::export::{Exporter, InUse, NotShown};
use crate::image::{Image, ImageName};
use crate::log;

/// Shows images in the one directory of the mount.
pub(crate) struct FuseExporter {
    mount: PathBuf,
    /// Any descriptor of the mount takes notices.
    device: Arc<Device>,
    nodes: Arc<Nodes>,
}

impl FuseExporter {
    pub(crate) fn new(mount: PathBuf, device: Arc<Device>, nodes: Arc<Nodes>) -> Self {
        Self { mount, device, nodes }
    }

    /// The kernel hands out again what a dead server had read and not answered.
    pub(crate) fn ask_for_unanswered(&self) {
        self.notify("resend", notice::RESEND, &[]);
    }

    fn forget_name(&self, name: &ImageName) {
        let name = name.as_str().as_bytes();
        let body = InvalidateName { parent: ROOT, name_length: name.len() as u32, flags: 0 };
        self.notify("forget", notice::INVALIDATE_NAME, &[body.as_bytes(), name, &[0]]);
    }

    /// Says whether the kernel knew what the notice is about.
    fn notify(&self, purpose: &str, code: i32, parts: &[&[u8]]) -> bool {
        match self.device.send(0, code, parts) {
            Ok(()) => true,
            Err(Errno::ENOENT | Errno::ENOTDIR) => false,
            Err(errno) => {
                log::warning("notice_refused", &[("purpose", &purpose), ("reason", &errno.desc())]);
                false
            }
        }
    }
}

impl Exporter for FuseExporter {
    fn kinds(&self) -> Vec<&'static str> {
        vec!["fuse"]
    }

    fn path(&self, image: &Image) -> PathBuf {
        self.mount.join(image.name().as_str())
    }

    fn publish(&self, image: &Arc<Image>) -> Result<(), NotShown> {
        self.nodes.insert(Arc::clone(image));
        Ok(())
    }

    fn republish(&self, image: &Arc<Image>) {
        self.nodes.insert(Arc::clone(image));
    }

    fn await_shown(&self, _image: &Image) -> Result<(), NotShown> {
        Ok(())
    }

    fn withdraw(&self, image: &Image, force: bool) -> Result<(), InUse> {
        if self.nodes.remove(image, force)?.is_some() {
            self.nodes.forget_backing(image, &self.device);
            // The kernel lets go of the pages as well once nobody has the file open.
            self.forget_name(image.name());
        }
        Ok(())
    }

    fn users(&self, images: &[&Image]) -> Vec<usize> {
        images.iter().map(|image| self.nodes.users(image)).collect()
    }

    fn can_grow(&self, _image: &Image) -> bool {
        true
    }

    fn collect_writes(&self, _image: &Image) -> io::Result<()> {
        // Every write is sent before it is acknowledged.
        Ok(())
    }

    fn wait_unused(&self, image: &Image, patience: Duration) -> usize {
        self.nodes.wait_unused(image, patience)
    }

    fn announce_size(&self, image: &Image) {
        let body = InvalidateNode { node: image.serial(), offset: -1, length: 0 };
        self.notify("resize", notice::INVALIDATE_NODE, &[body.as_bytes()]);
    }

    fn populate(&self, image: &Image, offset: u64, bytes: &[u8]) -> bool {
        if image.is_writable() {
            return false;
        }
        let Ok(size) = u32::try_from(bytes.len()) else { return false };
        let body = StoreOut { node: image.serial(), offset, size, padding: 0 };
        self.notify("populate", notice::STORE, &[body.as_bytes(), bytes])
    }
}

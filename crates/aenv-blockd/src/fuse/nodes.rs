//! The one directory of the mount: which node is which image. A node has the number of its image, which is never given
//! twice, so that what the kernel remembers of an image that is gone cannot show another one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::abi::{Attributes, ROOT};
use super::device::Device;
use super::opens::Opens;
use crate::export::InUse;
use crate::image::{Content, Image, ImageName, Use};

/// Noted instead of a number for a plain file that the kernel does not read by itself.
const NOT_BACKED: i32 = -1;

/// One file of the directory.
pub(crate) struct Node {
    pub(crate) image: Arc<Image>,
}

/// All files.
pub(crate) struct Nodes {
    directory: RwLock<Directory>,
    opens: Opens,
    registering: Mutex<()>,
}

#[derive(Default)]
struct Directory {
    by_number: BTreeMap<u64, Arc<Node>>,
    by_name: BTreeMap<ImageName, u64>,
}

impl Nodes {
    /// An empty directory, and the record of files that processes have open since before this program.
    pub(crate) fn load(opens: &Path, mount: [u8; 16]) -> io::Result<Self> {
        Ok(Self {
            directory: RwLock::default(),
            opens: Opens::load(opens, mount)?,
            registering: Mutex::default(),
        })
    }

    pub(crate) fn insert(&self, image: Arc<Image>) {
        debug_assert!(image.serial() > ROOT, "the root has the first number");
        let mut directory = self.change();
        directory.by_name.insert(image.name().clone(), image.serial());
        let node = Node { image };
        directory.by_number.insert(node.image.serial(), Arc::new(node));
    }

    /// Takes an image out, unless somebody has it open.
    pub(crate) fn remove(&self, image: &Image, force: bool) -> Result<Option<Arc<Node>>, InUse> {
        // Opening takes the same lock, so that nobody opens what is found unused here.
        let mut directory = self.change();
        let users = self.opens.count(image.serial());
        if users > 0 && !force {
            return Err(InUse { users });
        }
        directory.by_name.remove(image.name());
        self.opens.remove_node(image.serial());
        Ok(directory.by_number.remove(&image.serial()))
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Node>> {
        self.look().by_number.get(&number).cloned()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Node>> {
        let name = ImageName::try_from(name.to_owned()).ok()?;
        let directory = self.look();
        directory.by_name.get(&name).and_then(|number| directory.by_number.get(number)).cloned()
    }

    /// Notes an open file; none when the image is gone, false when too many files are open.
    pub(crate) fn open(&self, number: u64, handle: u64) -> Option<(Arc<Node>, bool)> {
        let directory = self.look();
        let node = directory.by_number.get(&number)?;
        Some((Arc::clone(node), self.opens.add(handle, number)))
    }

    pub(crate) fn release(&self, handle: u64) {
        self.opens.remove(handle);
    }

    /// The kernel's number of the plain file that it reads for an image by itself, made known to it at the first call.
    pub(crate) fn backing(&self, image: &Image, device: &Device) -> Option<i32> {
        // Two opens at once must not make two numbers of one file.
        let _alone = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backing) = self.opens.backing(image.serial()) {
            return Some(backing).filter(|&backing| backing != NOT_BACKED);
        }
        let registered = match image.content_nowait() {
            Some(Ok(Content::Plain(file))) => device.register_backing(file.descriptor()).ok(),
            _ => None,
        };
        // The first open decides for all, because the kernel does not mix the two ways of opening a file.
        if self.opens.set_backing(image.serial(), registered.unwrap_or(NOT_BACKED)) {
            return registered;
        }
        if let Some(backing) = registered {
            let _ = device.forget_backing(backing);
        }
        None
    }

    /// Lets the kernel forget the plain file of an image that is gone.
    pub(crate) fn forget_backing(&self, image: &Image, device: &Device) {
        let backing = self.opens.take_backing(image.serial());
        if let Some(backing) = backing.filter(|&backing| backing != NOT_BACKED) {
            let _ = device.forget_backing(backing);
        }
    }

    pub(crate) fn users(&self, image: &Image) -> usize {
        self.opens.count(image.serial())
    }

    pub(crate) fn wait_unused(&self, image: &Image, patience: Duration) -> usize {
        self.opens.wait_unused(image.serial(), patience)
    }

    /// The first file behind a number, in the order of numbers.
    pub(crate) fn next(&self, behind: u64) -> Option<Arc<Node>> {
        self.look().by_number.range(behind.saturating_add(1)..).next().map(|(_, node)| Arc::clone(node))
    }

    pub(crate) fn count(&self) -> usize {
        self.look().by_number.len()
    }

    // Single insertions and removals: a panic elsewhere cannot leave half of one.
    fn look(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Attributes of the file once its size is known.
    pub(crate) fn attributes(&self, size: u64) -> Attributes {
        let image = &self.image;
        let permissions = match (image.purpose(), image.is_writable()) {
            (Use::Disk, true) => 0o600,
            (Use::Disk, false) => 0o400,
            // Monitors of many users open one memory image, some of them for writing although they map it privately.
            // Writes are refused whatever the mode says.
            (Use::Memory, _) => 0o666,
        };
        Attributes {
            inode: image.serial(),
            size,
            blocks: size.div_ceil(512),
            mode: libc::S_IFREG | permissions,
            links: 1,
            owner: image.owner(),
            group: image.owner(),
            block_size: 4096,
            ..Attributes::default()
        }
    }
}

/// Attributes of the directory: root lists it, others need the name.
pub(crate) fn root_attributes() -> Attributes {
    Attributes {
        inode: ROOT,
        mode: libc::S_IFDIR | 0o711,
        links: 2,
        block_size: 4096,
        ..Attributes::default()
    }
}

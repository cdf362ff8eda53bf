//! The directory of block device nodes, by names of images. They are made here and not by udev, which knows no owners
//! and is not everywhere.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{chown, DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{makedev, mknod, Mode, SFlag};
use nix::sys::statvfs::{statvfs, FsFlags};

use super::character::Character;
use super::control::UblkError;
use crate::image::{Image, ImageName};

/// Before names of nodes that are not for everybody; names of images begin otherwise.
const HIDDEN: &str = ".";

/// Where processes find the devices of disks.
pub(crate) struct NodeDirectory(PathBuf);

impl NodeDirectory {
    /// Makes the directory beside the mount.
    pub(crate) fn beside(mount: &Path) -> Result<Self, UblkError> {
        let mut name = mount.as_os_str().to_owned();
        name.push(".devices");
        let path = PathBuf::from(name);
        let make = DirBuilder::new().recursive(true).mode(0o711).create(&path);
        make.map_err(|error| UblkError::System("make the directory of devices", error))?;
        let flags = statvfs(&path)
            .map_err(|errno| UblkError::System("look at the directory of devices", errno.into()))?;
        if flags.flags().contains(FsFlags::ST_NODEV) {
            return Err(UblkError::NoDevices(path));
        }
        Ok(Self(path))
    }

    /// Where the node of an image is, or will be.
    pub(crate) fn path(&self, name: &ImageName) -> PathBuf {
        self.0.join(name.as_str())
    }

    /// Makes the node of an image, for its owner alone. An older one is replaced.
    pub(crate) fn put(&self, image: &Image, (major, minor): (u32, u32)) -> io::Result<()> {
        let hidden = self.hidden(image.name());
        remove_if_there(&hidden)?;
        let device = makedev(u64::from(major), u64::from(minor));
        mknod(&hidden, SFlag::S_IFBLK, Mode::S_IRUSR, device)?;
        let mode = if image.is_writable() { 0o600 } else { 0o400 };
        let made = chown(&hidden, Some(image.owner()), None)
            .and_then(|()| fs::set_permissions(&hidden, Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(&hidden, self.path(image.name())));
        if made.is_err() {
            // The first failure is the one to report.
            let _ = fs::remove_file(&hidden);
        }
        made
    }

    /// Takes the node away in a way that can be undone; whoever wants to open it does not find it.
    pub(crate) fn hide(&self, name: &ImageName) -> io::Result<()> {
        fs::rename(self.path(name), self.hidden(name))
    }

    /// Shows a hidden node again.
    pub(crate) fn reveal(&self, name: &ImageName) -> io::Result<()> {
        fs::rename(self.hidden(name), self.path(name))
    }

    /// Removes the node of an image, hidden or not.
    pub(crate) fn remove(&self, name: &ImageName) -> io::Result<()> {
        remove_if_there(&self.hidden(name))?;
        remove_if_there(&self.path(name))
    }

    /// Removes every node.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Opens the character device of these numbers, wherever the system has its node, if anywhere.
    pub(crate) fn open_character(&self, device: u32, (major, minor): (u32, u32)) -> io::Result<Character> {
        let node = self.0.join(format!("{HIDDEN}{HIDDEN}{device}"));
        remove_if_there(&node)?;
        let number = makedev(u64::from(major), u64::from(minor));
        mknod(&node, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, number)?;
        let opened = File::options().read(true).write(true).open(&node);
        fs::remove_file(&node)?;
        opened.map(Character::new)
    }

    /// Where the node of an image is while it is hidden.
    pub(crate) fn hidden(&self, name: &ImageName) -> PathBuf {
        self.0.join(format!("{HIDDEN}{name}"))
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

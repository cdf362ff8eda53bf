//! Leaves the initramfs: frees its memory and makes the user's disk the root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{mount, MsFlags};
use nix::sys::statfs::{statfs, TMPFS_MAGIC};

use super::mounts::NEW_ROOT;
use super::InitError;

/// The file system of an initramfs without tmpfs.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Moves into the new root. Our own program stays: its file has no name any more, but it runs.
pub(super) fn switch_to_root() -> Result<(), InitError> {
    // The early mounts stay where they are: nobody can reach them any more, and unmounting costs boot time.
    free_memory();
    let switch = || {
        nix::unistd::chdir(NEW_ROOT)?;
        mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
        nix::unistd::chroot(".")?;
        nix::unistd::chdir("/")
    };
    switch().map_err(|error| InitError::system("switch to the root disk", error))
}

/// Deletes what the initramfs holds. Only ever on a file system that lives in memory.
fn free_memory() {
    let is_memory = statfs("/").is_ok_and(|figures| {
        let kind = figures.filesystem_type();
        kind == TMPFS_MAGIC || i64::from(kind.0 as u32) == RAMFS_MAGIC
    });
    let Ok(root) = fs::symlink_metadata("/") else { return };
    if is_memory {
        remove_contents(Path::new("/"), root.dev());
    }
}

/// Stays on one file system: the new root below us is another one.
fn remove_contents(directory: &Path, device: u64) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.dev() != device => {}
            Ok(metadata) if metadata.is_dir() => {
                remove_contents(&path, device);
                let _ = fs::remove_dir(&path);
            }
            // What cannot be removed costs a little memory, nothing else.
            _ => drop(fs::remove_file(&path)),
        }
    }
}

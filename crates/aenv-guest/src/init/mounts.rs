//! Mounts: the few of the initramfs, the user's disk, and the system's own below it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{mount, MsFlags};

use super::boot_options::BootOptions;
use super::{beneath, console, device, InitError};

/// Where the user's disk is mounted before it becomes the root.
pub(super) const NEW_ROOT: &str = "/newroot";

/// One mount of a file system that the kernel makes up.
struct SystemMount {
    target: &'static str,
    kind: &'static str,
    flags: MsFlags,
    options: &'static str,
    is_vital: bool,
}

const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
const WRITABLE: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

const EARLY: [SystemMount; 3] = [
    SystemMount {
        target: "/dev",
        kind: "devtmpfs",
        flags: MsFlags::MS_NOSUID,
        options: "mode=0755",
        is_vital: true,
    },
    SystemMount { target: "/proc", kind: "proc", flags: QUIET, options: "", is_vital: true },
    SystemMount { target: "/sys", kind: "sysfs", flags: QUIET, options: "", is_vital: true },
];

const LATE: [SystemMount; 4] = [
    SystemMount {
        target: "/dev/pts",
        kind: "devpts",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC),
        options: "gid=5,mode=620,ptmxmode=666",
        is_vital: false,
    },
    SystemMount { target: "/dev/shm", kind: "tmpfs", flags: WRITABLE, options: "mode=1777", is_vital: false },
    SystemMount { target: "/run", kind: "tmpfs", flags: WRITABLE, options: "mode=0755", is_vital: false },
    SystemMount { target: "/sys/fs/cgroup", kind: "cgroup2", flags: QUIET, options: "", is_vital: false },
];

/// Mounts what the initramfs needs.
pub(super) fn mount_early() -> Result<(), InitError> {
    EARLY.iter().try_for_each(mount_system_one)
}

/// Mounts the user's disk.
pub(super) fn mount_root(options: &BootOptions) -> Result<(), InitError> {
    let device = Path::new(&options.root);
    device::wait_for(device)
        .map_err(|error| InitError::system(format!("wait for {}", options.root), error))?;
    let kind = options.root_type.as_str();
    let what = || format!("mount {} as {kind}", options.root);
    fs::create_dir_all(NEW_ROOT).map_err(|error| InitError::system(what(), error))?;
    mount(Some(device), NEW_ROOT, Some(kind), MsFlags::MS_NOATIME, None::<&str>)
        .map_err(|error| InitError::system(what(), error))
}

/// Mounts the system's own directories in the root. From here on paths of the image cannot leave the image.
pub(super) fn mount_system() -> Result<(), InitError> {
    EARLY.iter().chain(&LATE).try_for_each(mount_system_one)?;
    link_standard_streams();
    if let Err(error) = open_temporary_directory() {
        console::print(&format!("/tmp: {error}"));
    }
    Ok(())
}

fn mount_system_one(one: &SystemMount) -> Result<(), InitError> {
    let mounted = beneath::make_directory(Path::new(one.target)).and_then(|()| {
        match mount(Some(one.kind), one.target, Some(one.kind), one.flags, Some(one.options)) {
            // Some kernels mount devtmpfs by themselves.
            Ok(()) | Err(Errno::EBUSY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    match mounted {
        Err(error) if one.is_vital => Err(InitError::system(format!("mount {}", one.target), error)),
        Err(error) => {
            console::print(&format!("mount {}: {error}", one.target));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// `/dev` is the kernel's, so nothing of the image is in the way.
fn link_standard_streams() {
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ];
    for (target, link) in links {
        // A node that exists already serves as well.
        let _ = std::os::unix::fs::symlink(target, link);
    }
}

/// `/tmp` is a directory of the disk, and everybody may write there.
fn open_temporary_directory() -> std::io::Result<()> {
    let directory = Path::new("/tmp");
    beneath::make_directory(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1777))
}

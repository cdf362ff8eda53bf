//! Which file systems do not tell about changes made elsewhere, so that watching them misleads. Blocking.

use std::path::Path;

use nix::sys::statfs::{self, FsType};

use crate::connect::ConnectError;
use crate::filesystem::errors;

/// NFS, SMB, CIFS, SMB 2 and FUSE, from the kernel's list of magic numbers.
const NETWORK_TYPES: [u32; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546];

/// Whether a path is on a file system whose files others may change.
pub(super) fn is_network(path: &Path) -> Result<bool, ConnectError> {
    let found = statfs::statfs(path).map_err(|error| errors::from_io(&error.into(), path))?;
    Ok(is_network_type(found.filesystem_type()))
}

fn is_network_type(FsType(number): FsType) -> bool {
    // The kernel's numbers have 32 bits; the field's width and sign depend on the architecture.
    NETWORK_TYPES.contains(&(number as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_local() {
        assert!(!is_network(Path::new("/proc")).expect("there"));
        assert!(is_network(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn fuse_is_not() {
        assert!(is_network_type(FsType(0x6573_5546)));
        assert!(!is_network_type(FsType(0xef53)));
    }
}

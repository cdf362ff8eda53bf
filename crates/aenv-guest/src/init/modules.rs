//! Loads the kernel modules that came with the initramfs, in the order of its list.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{finit_module, ModuleInitFlags};

use super::InitError;

const DIRECTORY: &str = "/modules";

/// Loads every module of `/modules/load`. A kernel that has everything built in brings no list.
pub(super) fn load_all() -> Result<(), InitError> {
    let list = match fs::read_to_string(Path::new(DIRECTORY).join("load")) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(InitError::system("read /modules/load", error)),
    };
    for name in list.lines().map(str::trim).filter(|name| !name.is_empty()) {
        load(name).map_err(|error| InitError::system(format!("load module {name}"), error))?;
    }
    Ok(())
}

fn load(name: &str) -> io::Result<()> {
    let file = File::open(Path::new(DIRECTORY).join(name))?;
    match finit_module(&file, c"", ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

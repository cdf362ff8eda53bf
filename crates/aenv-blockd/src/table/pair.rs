//! Directories of writable layers: made, opened, claimed and removed. Root alone may enter them.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aenv_layers::{
    BootId, LayerId, Limits, LocalDirectory, NewLayer, OpenLayer, PairLocation, WritableLayer, WritePolicy,
};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::refusal::Refusal;

/// The file that grows with what is written.
pub(crate) const DATA: &str = "data";
/// The file that says what is where.
pub(crate) const INDEX: &str = "index";
/// What the compaction of an index may leave behind.
const INDEX_REPLACEMENT: &str = "index.new";

/// Length of both files before the first write.
const EMPTY: u64 = 4096;

/// Directories that this program has locked, so that no other program opens what is in them.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<PathBuf, Flock<File>>>);

impl Claims {
    /// Locks a directory until it is released, or this program ends.
    pub(crate) fn take(&self, directory: &Path) -> Result<(), Refusal> {
        let file = File::open(directory).map_err(Refusal::file("open", directory))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => Refusal::DirectoryInUse(directory.to_owned()),
            other => Refusal::file("lock", directory)(other.into()),
        })?;
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.insert(directory.to_owned(), lock);
        Ok(())
    }

    /// Lets others have the directory.
    pub(crate) fn release(&self, directory: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(directory);
    }
}

/// Whether the directory holds a layer. Half of one is what an interrupted creation leaves.
pub(crate) fn exists(directory: &Path) -> bool {
    length(directory, DATA).is_some() && (length(directory, INDEX).is_some() || holds_writes(directory))
}

/// Whether the directory holds a layer that was written to.
pub(crate) fn holds_writes(directory: &Path) -> bool {
    [DATA, INDEX].iter().any(|name| length(directory, name).is_some_and(|length| length > EMPTY))
}

fn length(directory: &Path, name: &str) -> Option<u64> {
    fs::metadata(directory.join(name)).map(|metadata| metadata.len()).ok()
}

/// Makes the directory durably. Says whether it was new.
pub(crate) fn make_directory(directory: &Path) -> Result<bool, Refusal> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(Refusal::file("create", directory)(error)),
    }
    sync_parent(directory)?;
    Ok(true)
}

/// Makes an empty layer in a directory that has none.
pub(crate) fn create(
    directory: &Path,
    parent: LayerId,
    virtual_size: u64,
    policy: WritePolicy,
    boot: BootId,
) -> Result<WritableLayer, Refusal> {
    // What a creation left behind that did not come to its end.
    remove_files(directory)?;
    let new = NewLayer { id: random_id()?, parent, virtual_size, policy, boot };
    Ok(WritableLayer::create(&name_of(directory), location(directory)?, new)?)
}

/// Opens the layer of a directory, and repairs what a crash left.
pub(crate) fn open(
    directory: &Path,
    inherited_size: u64,
    policy: WritePolicy,
    boot: BootId,
) -> Result<WritableLayer, Refusal> {
    let options = OpenLayer { inherited_size, policy, boot, limits: Limits::default() };
    Ok(WritableLayer::open(&name_of(directory), location(directory)?, options)?)
}

/// Removes the layer and its directory. A directory that holds other files stays.
pub(crate) fn remove(directory: &Path) -> Result<(), Refusal> {
    remove_files(directory)?;
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Refusal::file("remove", directory)(error)),
        Ok(()) => sync_parent(directory),
    }
}

/// Makes the names in the directory around a path durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), Refusal> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(Refusal::file("write out", parent))
}

fn remove_files(directory: &Path) -> Result<(), Refusal> {
    for name in [DATA, INDEX_REPLACEMENT, INDEX] {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Refusal::file("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn location(directory: &Path) -> Result<PairLocation, Refusal> {
    let opened = LocalDirectory::open(directory).map_err(Refusal::file("open", directory))?;
    Ok(PairLocation { directory: Arc::new(opened), data: DATA.into(), index: INDEX.into() })
}

fn name_of(directory: &Path) -> String {
    directory.display().to_string()
}

fn random_id() -> Result<LayerId, Refusal> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Refusal::file("read", source))?;
    // The marks of a random UUID.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(LayerId(bytes))
}

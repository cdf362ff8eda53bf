//! The watched directories of one watcher: an inotify instance, and which descriptor stands for which directory.
//! Blocking. Paths are relative to the watched root.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::events::{types_of, EventType, FilesystemEvent, ABOUT_SELF, INTERESTING};
use super::{mounts, Scope};
use crate::connect::{Code, ConnectError};
use crate::filesystem::entry::Entry;
use crate::filesystem::errors;
use crate::filesystem::owners::Owners;
use crate::paths;

/// Directories of one watcher. Each costs the kernel about a KiB.
const DIRECTORIES_MAX: usize = 8192;
/// Files found in directories that appear with content, per look.
const FOUND_MAX: usize = 16_384;

/// Events that a look at the kernel's queue gave.
#[derive(Debug, Default)]
pub(super) struct Harvest {
    /// In order.
    pub(super) events: Vec<FilesystemEvent>,
    /// Why some are missing, when some are.
    pub(super) lost: Option<String>,
    /// Whether the kernel has no more for now.
    pub(super) is_drained: bool,
}

/// A watched directory, or tree of directories.
#[derive(Debug)]
pub(super) struct Directories {
    inotify: Inotify,
    scope: Scope,
    device: u64,
    paths: HashMap<WatchDescriptor, PathBuf>,
}

impl Directories {
    /// Starts watching.
    pub(super) fn open(scope: Scope) -> Result<Self, ConnectError> {
        let root = scope.root.as_path();
        let metadata = std::fs::metadata(root).map_err(|error| errors::from_io(&error, root))?;
        if !metadata.is_dir() {
            return Err(errors::not_a_directory(root));
        }
        if !scope.allows_network_mounts && mounts::is_network(root)? {
            let message =
                format!("'{}' is on a network mount; allow_network_mounts permits it", root.display());
            return Err(ConnectError::invalid_argument(message));
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|error| limit_error(error, root))?;
        let mut directories = Self { inotify, device: metadata.dev(), paths: HashMap::new(), scope };
        directories
            .add(PathBuf::new(), INTERESTING | ABOUT_SELF)
            .map_err(|error| directories.refusal(error))?;
        if directories.scope.is_recursive {
            directories
                .add_tree(Path::new(""), &mut |_, _| Ok(()))
                .map_err(|error| directories.refusal(error))?;
        }
        Ok(directories)
    }

    fn refusal(&self, error: Errno) -> ConnectError {
        limit_error(error, &self.scope.root)
    }

    /// The descriptor that becomes readable when something happened.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Takes events from the kernel, up to about `wanted`.
    pub(super) fn harvest(&mut self, wanted: usize) -> Harvest {
        let mut harvest = Harvest::default();
        let mut owners = Owners::default();
        while harvest.events.len() < wanted && !harvest.is_drained {
            match self.inotify.read_events() {
                Ok(events) => events.into_iter().for_each(|event| self.absorb(event, &mut harvest)),
                Err(Errno::EAGAIN) => harvest.is_drained = true,
                Err(Errno::EINTR) => {}
                Err(error) => {
                    harvest.lost = Some(format!("the kernel's queue cannot be read: {}", error.desc()));
                    harvest.is_drained = true;
                }
            }
        }
        if self.scope.includes_entry {
            for event in harvest.events.iter_mut().filter(|event| event.event_type.leaves_entry()) {
                let path = paths::clean(&self.scope.root.join(&event.name));
                event.entry = Entry::read(&path, &mut owners).ok();
            }
        }
        harvest
    }

    fn absorb(&mut self, event: InotifyEvent, harvest: &mut Harvest) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            harvest.lost = Some("more happened than the kernel's queue holds".into());
            return;
        }
        let Some(directory) = self.paths.get(&event.wd) else { return };
        let is_root = directory.as_os_str().is_empty();
        let path = match &event.name {
            Some(name) => directory.join(name),
            None if is_root => PathBuf::from("."),
            // The parent's watch tells the same.
            None => PathBuf::new(),
        };
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.paths.remove(&event.wd);
        }
        if !path.as_os_str().is_empty() {
            harvest.events.extend(types_of(event.mask).map(|event_type| event_of(&path, event_type)));
        }
        if self.scope.is_recursive && event.name.is_some() && event.mask.contains(AddWatchFlags::IN_ISDIR) {
            self.follow(&path, event.mask, harvest);
        }
    }

    /// Keeps the set of watched directories in step with the tree.
    fn follow(&mut self, path: &Path, mask: AddWatchFlags, harvest: &mut Harvest) {
        if mask.contains(AddWatchFlags::IN_MOVED_FROM) {
            // It may leave the tree. When it only moves inside, its arrival adds it again.
            self.forget(path);
        }
        if !mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO) {
            return;
        }
        let mut found = Vec::new();
        let mut note = |path: &Path, metadata: &std::fs::Metadata| {
            if found.len() >= FOUND_MAX {
                return Err(Errno::EOVERFLOW);
            }
            found.push(event_of(path, EventType::Create));
            if metadata.is_file() && metadata.len() > 0 {
                found.push(event_of(path, EventType::Write));
            }
            Ok(())
        };
        // What was created inside before we looked has no event of its own any more.
        let added = self.add(path.to_owned(), INTERESTING).and_then(|()| self.add_tree(path, &mut note));
        harvest.events.append(&mut found);
        match added {
            // It vanished again, or a link took its place.
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
            Err(error) => {
                harvest.lost = Some(format!("'{}' cannot be watched: {}", path.display(), limit_text(error)));
            }
        }
    }

    fn forget(&mut self, path: &Path) {
        let gone: Vec<WatchDescriptor> = self
            .paths
            .iter()
            .filter(|(_, known)| known.starts_with(path))
            .map(|(descriptor, _)| *descriptor)
            .collect();
        for descriptor in gone {
            self.paths.remove(&descriptor);
            // The kernel forgets the watch of a directory that is gone by itself.
            let _ = self.inotify.rm_watch(descriptor);
        }
    }

    fn add(&mut self, path: PathBuf, mask: AddWatchFlags) -> Result<(), Errno> {
        if self.paths.len() >= DIRECTORIES_MAX {
            return Err(Errno::EOVERFLOW);
        }
        let mut mask = mask | AddWatchFlags::IN_ONLYDIR;
        if !path.as_os_str().is_empty() {
            mask |= AddWatchFlags::IN_DONT_FOLLOW;
        }
        let descriptor = self.inotify.add_watch(&self.scope.root.join(&path), mask)?;
        self.paths.insert(descriptor, path);
        Ok(())
    }

    /// Adds all directories below `top`, and shows everything found there to `note`.
    fn add_tree(
        &mut self,
        top: &Path,
        note: &mut dyn FnMut(&Path, &std::fs::Metadata) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut pending = vec![top.to_owned()];
        while let Some(directory) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(self.scope.root.join(&directory)) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let path = directory.join(entry.file_name());
                let Ok(metadata) = entry.metadata() else { continue };
                note(&path, &metadata)?;
                if metadata.is_dir() && self.is_allowed(&path, &metadata) {
                    match self.add(path.clone(), INTERESTING) {
                        Ok(()) => pending.push(path),
                        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// A network mount below the root is left out, as it would be refused as a root.
    fn is_allowed(&self, path: &Path, metadata: &std::fs::Metadata) -> bool {
        self.scope.allows_network_mounts
            || metadata.dev() == self.device
            || !mounts::is_network(&self.scope.root.join(path)).unwrap_or(true)
    }
}

fn event_of(path: &Path, event_type: EventType) -> FilesystemEvent {
    FilesystemEvent { name: path.to_string_lossy().into_owned(), event_type, entry: None }
}

fn limit_error(error: Errno, root: &Path) -> ConnectError {
    match error {
        Errno::EOVERFLOW | Errno::ENOSPC | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => {
            let message = format!("'{}' cannot be watched: {}", root.display(), limit_text(error));
            ConnectError::new(Code::ResourceExhausted, message)
        }
        other => errors::from_io(&io::Error::from(other), root),
    }
}

fn limit_text(error: Errno) -> String {
    match error {
        Errno::EOVERFLOW => {
            format!("more than {DIRECTORIES_MAX} directories or {FOUND_MAX} new files at once")
        }
        Errno::ENOSPC => "the kernel's limit on watched directories is reached".into(),
        Errno::EMFILE => "the kernel's limit on watchers is reached".into(),
        other => other.desc().into(),
    }
}

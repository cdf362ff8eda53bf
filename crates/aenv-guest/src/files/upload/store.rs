//! Puts the files of one upload on disk and remembers what it wrote. Blocking.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::files::errors::FileError;
use crate::files::metadata::Metadata;
use crate::files::open;
use crate::files::written::Written;
use crate::filesystem::attributes;
use crate::paths;
use crate::users::User;

/// Names are kept until the upload ends; this bounds them all together.
const NAME_BYTES_MAX: usize = 4 << 20;

/// How the targets of an upload are found, and who owns them.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// Owner of new files, and whose home `~` is.
    pub(super) user: User,
    /// Where relative paths start, when not at home.
    pub(super) default_workdir: Option<String>,
    /// The only target, when the URL names one.
    pub(super) path: Option<String>,
    /// What is attached to every file.
    pub(super) metadata: Metadata,
}

impl Destination {
    /// The path from the URL, else the one given in the body.
    fn target(&self, named: Option<&str>) -> Result<PathBuf, FileError> {
        let path = self.path.as_deref().or(named).filter(|path| !path.is_empty());
        let path =
            path.ok_or_else(|| FileError::Invalid("no path: name it in the query or as filename".into()))?;
        Ok(paths::resolve(path, &self.user.home, self.default_workdir.as_deref()))
    }
}

/// The files of one upload.
#[derive(Debug)]
pub(super) struct Store {
    destination: Destination,
    targets: HashSet<PathBuf>,
    name_bytes: usize,
    written: Vec<Written>,
}

impl Store {
    /// An upload that has written nothing yet.
    pub(super) fn new(destination: Destination) -> Self {
        Self { destination, targets: HashSet::new(), name_bytes: 0, written: Vec::new() }
    }

    /// Opens the next file; `named` is the name that the body gives it.
    pub(super) fn create(&mut self, named: Option<&str>) -> Result<(File, PathBuf), FileError> {
        let target = self.destination.target(named)?;
        self.name_bytes += target.as_os_str().len();
        if self.name_bytes > NAME_BYTES_MAX {
            return Err(FileError::Invalid(format!("the names of one upload exceed {NAME_BYTES_MAX} bytes")));
        }
        if !self.targets.insert(target.clone()) {
            return Err(FileError::Invalid(format!(
                "path '{}' is written twice in one upload",
                target.display()
            )));
        }
        let file = open::for_writing(&target, &self.destination.user)?;
        attributes::replace(&file, &self.destination.metadata)
            .map_err(|error| FileError::from_io(&error, &target))?;
        Ok((file, target))
    }

    /// Notes a file as complete.
    pub(super) fn finish(&mut self, target: &Path) {
        self.written.push(Written::read(target));
    }

    /// What was written, in the order of the upload.
    pub(super) fn into_written(self) -> Vec<Written> {
        self.written
    }
}

//! `POST /files/compose`: joins files into one that appears whole or not at all, then deletes the parts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use serde::Deserialize;

use super::errors::FileError;
use super::written::Written;
use super::{blocking, open, upload};
use crate::http::{self, Request, Response};
use crate::state::Daemon;
use crate::users::User;

/// Each source costs a few system calls; nobody splits a file further.
const SOURCES_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
struct ComposeRequest {
    source_paths: Vec<String>,
    destination: String,
    #[serde(default)]
    username: Option<String>,
}

/// Joins files.
pub(crate) async fn post(daemon: &Daemon, request: Request) -> Result<Response, FileError> {
    let bytes = match http::read_body(request.into_body(), http::JSON_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(http::error(error.status(), error.to_string())),
    };
    let wanted: ComposeRequest = serde_json::from_slice(&bytes)
        .map_err(|error| FileError::Invalid(format!("request is not a valid compose request: {error}")))?;
    let user = daemon.user(wanted.username.as_deref())?;
    let composition = Composition {
        sources: wanted.source_paths.iter().map(|path| daemon.resolve_path(path, &user)).collect(),
        destination: daemon.resolve_path(&wanted.destination, &user),
        user,
    };
    composition.check(&wanted.destination)?;
    let slot = blocking::transfer_slot(&upload::UPLOADS).await?;
    let written = blocking::run_long(slot, move || composition.run()).await??;
    Ok(http::json(StatusCode::OK, &written))
}

struct Composition {
    sources: Vec<PathBuf>,
    destination: PathBuf,
    user: User,
}

impl Composition {
    fn check(&self, destination: &str) -> Result<(), FileError> {
        if self.sources.is_empty() || self.sources.len() > SOURCES_MAX {
            return Err(FileError::Invalid(format!("source_paths must name 1 to {SOURCES_MAX} files")));
        }
        if destination.is_empty() {
            return Err(FileError::Invalid("destination must not be empty".into()));
        }
        Ok(())
    }

    fn run(&self) -> Result<Written, FileError> {
        let destination = self.destination.as_path();
        if destination.is_dir() {
            return Err(FileError::directory(destination));
        }
        let directory = destination.parent().ok_or_else(|| FileError::directory(destination))?;
        open::create_directories(directory, &self.user)
            .map_err(|(error, path)| FileError::from_io(&error, &path))?;
        let fail = |error: io::Error| FileError::from_io(&error, destination);
        let draft = Draft::create(directory).map_err(fail)?;
        for source in &self.sources {
            let (mut part, _) = open::for_reading(source)?;
            io::copy(&mut part, &mut &draft.file).map_err(fail)?;
        }
        fchown(&draft.file, Some(self.user.uid), Some(self.user.gid)).map_err(fail)?;
        draft.file.sync_all().map_err(fail)?;
        let composed = draft.publish(destination).map_err(fail)?;
        self.delete_sources(&composed)?;
        Ok(Written::read(destination))
    }

    /// The destination may have been one of the sources, under any name: it stays.
    fn delete_sources(&self, composed: &File) -> Result<(), FileError> {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let kept = composed
            .metadata()
            .map(identity)
            .map_err(|error| FileError::from_io(&error, &self.destination))?;
        for source in &self.sources {
            if source.metadata().map(identity).is_ok_and(|found| found == kept) {
                continue;
            }
            match std::fs::remove_file(source) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::from_io(&error, source));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A file under a temporary name, which vanishes unless it is published.
struct Draft {
    file: File,
    path: Option<PathBuf>,
}

impl Draft {
    fn create(directory: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!(".aenv-compose-{}-{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path) {
                // Left over from a daemon that died: the next number is free.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(Self { file, path: Some(path) }),
            }
        }
    }

    fn publish(mut self, destination: &Path) -> io::Result<File> {
        if let Some(path) = &self.path {
            std::fs::rename(path, destination)?;
        }
        self.path = None;
        self.file.try_clone()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Whoever deleted it first did our work.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composition(directory: &Path, sources: &[&str], destination: &str) -> Composition {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        Composition {
            sources: sources.iter().map(|name| directory.join(name)).collect(),
            destination: directory.join(destination),
            user: User {
                name: "me".into(),
                uid,
                gid,
                groups: vec![gid],
                home: "/".into(),
                shell: "/bin/sh".into(),
            },
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn parts_become_one_file() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a"), "one ").expect("written");
        std::fs::write(directory.path().join("b"), "two").expect("written");
        composition(directory.path(), &["a", "b"], "new/c").run().expect("composed");
        assert_eq!(std::fs::read_to_string(directory.path().join("new/c")).expect("read"), "one two");
        assert_eq!(names(directory.path()), ["new"]);
    }

    #[test]
    fn a_destination_among_the_sources_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a"), "one ").expect("written");
        std::fs::write(directory.path().join("b"), "two").expect("written");
        composition(directory.path(), &["a", "b"], "a").run().expect("composed");
        assert_eq!(std::fs::read_to_string(directory.path().join("a")).expect("read"), "one two");
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn a_missing_part_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a"), "one").expect("written");
        let outcome = composition(directory.path(), &["a", "missing"], "c").run();
        assert!(matches!(outcome, Err(FileError::NotFound(_))));
        assert_eq!(names(directory.path()), ["a"]);
    }
}

//! The verb `open`.

use std::path::{Path, PathBuf};

use aenv_sources::LayerReference;

use super::assemble::MAX_SEALED_LAYERS;
use super::journal::Change;
use super::open_image::OpenImage;
use super::{pair, Table, MAX_IMAGES};
use crate::image::{Description, Image, OpenArguments, Use};
use crate::log;
use crate::refusal::Refusal;

/// Most characters of a path.
const MAX_PATH: usize = 4096;

/// Where an opened image is, and how large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
}

impl Table {
    /// Opens an image, or finds it open with the same arguments.
    pub(crate) fn open(&self, arguments: OpenArguments) -> Result<Opened, Refusal> {
        check(&arguments)?;
        let _changing = self.changing.lock(&arguments.name);
        if let Some(open) = self.find(&arguments.name) {
            let opened = self.opened(&open)?;
            return match open.image.description().is_opened_by(&arguments, opened.size_bytes) {
                true => Ok(opened),
                false => Err(Refusal::OtherArguments(arguments.name)),
            };
        }
        if self.count() >= MAX_IMAGES {
            return Err(Refusal::TooMany("too many images are open"));
        }
        let is_made_here = arguments.writable.as_ref().is_some_and(|writable| !writable.directory.exists());
        let content = self.assemble_new(&arguments)?;
        let description = Description::new(self.journal.take_serial(), arguments);
        if let Err(error) = self.journal.commit(Change::Put(Box::new(description.clone()))) {
            drop(content);
            self.give_back(&description, is_made_here);
            return Err(error);
        }
        let image = Image::new(description.clone());
        image.settle(Ok(content));
        let open = OpenImage::new(image);
        let name = open.image.name().clone();
        if let Err(error) = self.exporter.publish(&open.image) {
            drop(open);
            self.give_back(&description, is_made_here);
            self.journal.commit(Change::Drop(name.clone()))?;
            return Err(Refusal::not_shown(name, &error));
        }
        let opened = self.opened(&open);
        log::info("image_opened", &[("image", &name.as_str()), ("serial", &open.image.serial())]);
        self.change().insert(name, open.into());
        opened
    }

    fn opened(&self, open: &OpenImage) -> Result<Opened, Refusal> {
        let size_bytes = open.content()?.size();
        let name = open.image.name();
        self.exporter.await_shown(&open.image).map_err(|error| Refusal::not_shown(name.clone(), &error))?;
        Ok(Opened { path: self.exporter.path(&open.image), size_bytes })
    }

    fn give_back(&self, description: &Description, is_made_here: bool) {
        if let Some(directory) = &description.writable {
            if is_made_here {
                // The first failure is the one to report; the directory is found by the next attempt.
                let _ = pair::remove(directory);
            }
            self.claims.release(directory);
        }
    }
}

fn check(arguments: &OpenArguments) -> Result<(), Refusal> {
    let limit = match &arguments.writable {
        Some(_) => MAX_SEALED_LAYERS,
        None => aenv_layers::MAX_LAYERS,
    };
    let layers = arguments.layers.len();
    if layers > limit {
        return Err(Refusal::TooManyLayers { image: arguments.name.clone(), layers, limit });
    }
    if let Some(path) = &arguments.plain {
        if !arguments.layers.is_empty() || arguments.writable.is_some() {
            return Err(Refusal::argument("a plain image has neither layers nor a writable one"));
        }
        return check_path(path);
    }
    match &arguments.writable {
        Some(_) if arguments.purpose == Use::Memory => {
            return Err(Refusal::argument("memory images take no writes: \"writable\" must be null"));
        }
        Some(writable) => check_path(&writable.directory)?,
        None if arguments.layers.is_empty() => {
            return Err(Refusal::argument("an image without layers needs a writable one"));
        }
        None => {}
    }
    arguments.layers.iter().try_for_each(check_layer)
}

fn check_layer(layer: &LayerReference) -> Result<(), Refusal> {
    match layer {
        LayerReference::File { path } => check_path(path),
        LayerReference::Registry { credentials_path, .. }
        | LayerReference::Object { credentials_path, .. } => {
            credentials_path.as_deref().map_or(Ok(()), check_path)
        }
    }
}

/// Paths are absolute, without surprises.
pub(crate) fn check_path(path: &Path) -> Result<(), Refusal> {
    let is_plain = path
        .components()
        .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    let length = path.as_os_str().len();
    if !path.is_absolute() || !is_plain || length > MAX_PATH || path.file_name().is_none() {
        return Err(Refusal::argument(format!("{} is not an absolute path without \"..\"", path.display())));
    }
    Ok(())
}

//! From a description to bytes: opens layers, finds out how far an interrupted seal came, puts the disk together.

use std::path::Path;
use std::sync::Arc;

use aenv_layers::{Disk, LayerId, Overwrite, Stack, View, WritableLayer, WritePolicy};

use super::pair;
use super::Table;
use crate::image::{Content, Description, Frozen, OpenArguments, Seal, WritableArguments, WritableDisk};
use crate::refusal::Refusal;

/// Layers that a stack may have below a writable one.
pub(crate) const MAX_SEALED_LAYERS: usize = aenv_layers::MAX_LAYERS - 1;

/// An image put together.
pub(crate) struct Assembled {
    pub(crate) content: Content,
    /// Layers that wait to be sealed, oldest first.
    pub(crate) frozen: Vec<Arc<WritableLayer>>,
}

/// How the writable layer of an image behaves.
pub(crate) fn policy_of(arguments: &WritableArguments) -> WritePolicy {
    // Discards leave dead data whatever the policy is.
    WritePolicy { overwrite: Overwrite::from(arguments.overwrite), remember_dead: true }
}

impl Table {
    /// Puts an image together for the first time; makes its writable layer when there is none.
    pub(crate) fn assemble_new(&self, opened: &OpenArguments) -> Result<Content, Refusal> {
        if let Some(path) = &opened.plain {
            return self.layers.plain_file(path).map(Content::Plain);
        }
        let stack = self.layers.stack(opened.name.as_str(), &opened.layers, opened.purpose)?;
        let Some(writable) = &opened.writable else {
            return Ok(Content::Sealed(stack));
        };
        let directory = &writable.directory;
        let is_new = pair::make_directory(directory)?;
        let top = self.claims.take(directory).and_then(|()| {
            self.open_or_create(writable, &stack).inspect_err(|_| self.claims.release(directory))
        });
        match top {
            Ok(top) => Ok(writable_content(opened.name.as_str(), top, Vec::new(), stack)),
            Err(error) => {
                if is_new {
                    // The first failure is the one to report.
                    let _ = pair::remove(directory);
                }
                Err(error)
            }
        }
    }

    fn open_or_create(
        &self,
        writable: &WritableArguments,
        stack: &Arc<Stack>,
    ) -> Result<WritableLayer, Refusal> {
        let policy = policy_of(writable);
        let wanted = writable.size_bytes;
        if !pair::exists(&writable.directory) {
            let size = wanted.unwrap_or(stack.size());
            if size == 0 || size < stack.size() {
                return Err(Refusal::argument(format!(
                    "a disk of {size} bytes cannot stand on layers of {}",
                    stack.size()
                )));
            }
            return pair::create(&writable.directory, top_id(stack), size, policy, self.boot);
        }
        let layer = pair::open(&writable.directory, stack.size(), policy, self.boot)?;
        match wanted {
            Some(size) if size != layer.virtual_size() => layer.grow(size)?,
            _ => {}
        }
        Ok(layer)
    }

    /// Puts an image of the table together again.
    pub(crate) fn assemble_again(&self, description: &Description) -> Result<Assembled, Refusal> {
        let opened = &description.opened;
        let name = opened.name.as_str();
        if let Some(path) = &opened.plain {
            let content = Content::Plain(self.layers.plain_file(path)?);
            return Ok(Assembled { content, frozen: Vec::new() });
        }
        let stack = self.layers.stack(name, &description.layers, opened.purpose)?;
        let (Some(directory), Some(writable)) = (&description.writable, &opened.writable) else {
            return Ok(Assembled { content: Content::Sealed(stack), frozen: Vec::new() });
        };
        let policy = policy_of(writable);
        let mut frozen = Vec::new();
        let mut size = stack.size();
        for layer in &description.frozen {
            let layer = self.claim_and_open(&layer.directory, size, policy)?;
            size = layer.virtual_size();
            frozen.push(Arc::new(layer));
        }
        let top = self.claim_and_open(directory, size, policy)?;
        let content = writable_content(name, top, frozen.iter().rev().cloned().collect(), stack);
        Ok(Assembled { content, frozen })
    }

    fn claim_and_open(
        &self,
        directory: &Path,
        size: u64,
        policy: WritePolicy,
    ) -> Result<WritableLayer, Refusal> {
        self.claims.take(directory)?;
        pair::open(directory, size, policy, self.boot)
    }

    /// Takes over the seals whose files had come to their place before this program began.
    pub(crate) fn finish_moved_seals(&self, description: &Description) -> Result<Description, Refusal> {
        let mut current = description.clone();
        while let Some(oldest) = current.frozen.first() {
            if oldest.directory.join(pair::DATA).exists() {
                break;
            }
            let seal = seal_of(oldest)?;
            self.layers.layer_file(&seal.path)?;
            pair::remove(&oldest.directory)?;
            current = current.with_sealed(seal);
        }
        Ok(current)
    }
}

/// The seal as it is remembered once the file is in its place.
pub(crate) fn seal_of(frozen: &Frozen) -> Result<Seal, Refusal> {
    let path = &frozen.sealed_path;
    let metadata = std::fs::metadata(path).map_err(Refusal::file("look at", path))?;
    Ok(Seal { seal_id: frozen.seal_id.clone(), path: path.clone(), size_bytes: metadata.len() })
}

/// What a new layer over the stack says that it was made on.
pub(crate) fn top_id(stack: &Stack) -> LayerId {
    stack.layers().last().map(|layer| layer.id()).unwrap_or_default()
}

fn writable_content(
    name: &str,
    top: WritableLayer,
    frozen_newest_first: Vec<Arc<WritableLayer>>,
    stack: Arc<Stack>,
) -> Content {
    let disk = Disk::with_frozen(name, Arc::new(top), frozen_newest_first, stack);
    Content::Writable(WritableDisk::new(Arc::new(disk)))
}

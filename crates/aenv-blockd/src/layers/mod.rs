//! Sealed layers and stacks, each open once however many images use them.

mod file;
mod shared;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aenv_layers::{Limits, ReadAt, SealedLayer, Stack};
use aenv_sources::{LayerReference, SourceFactory, Statistics};

use crate::image::{PlainFile, Use};
use crate::refusal::Refusal;
use file::{FileIdentity, LayerFile};
use shared::Shared;

/// What tells two open layers apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LayerKey {
    File(FileIdentity, Use),
    Remote(LayerReference),
}

/// All open layers and stacks.
pub(crate) struct LayerStore {
    mount: PathBuf,
    sources: SourceFactory,
    layers: Shared<LayerKey, SealedLayer>,
    stacks: Shared<Vec<LayerKey>, Stack>,
}

impl LayerStore {
    /// A store that opens no file below `mount`.
    pub(crate) fn new(mount: PathBuf, sources: SourceFactory) -> Self {
        Self { mount, sources, layers: Shared::new(), stacks: Shared::new() }
    }

    /// The stack of these layers.
    pub(crate) fn stack(
        &self,
        name: &str,
        references: &[LayerReference],
        purpose: Use,
    ) -> Result<Arc<Stack>, Refusal> {
        let mut keys = Vec::with_capacity(references.len());
        let mut layers = Vec::with_capacity(references.len());
        for reference in references {
            let (key, layer) = self.layer(reference, purpose)?;
            keys.push(key);
            layers.push(layer);
        }
        self.stacks.get_or_make(keys, || Ok(Arc::new(Stack::new(name, layers)?)))
    }

    /// What the block cache did and holds.
    pub(crate) fn statistics(&self) -> Statistics {
        self.sources.statistics()
    }

    /// Makes durable what the block cache holds.
    pub(crate) fn checkpoint(&self) {
        self.sources.checkpoint();
    }

    /// One sealed layer file of a disk.
    pub(crate) fn layer_file(&self, path: &Path) -> Result<Arc<SealedLayer>, Refusal> {
        self.layer(&LayerReference::File { path: path.to_owned() }, Use::Disk).map(|(_, layer)| layer)
    }

    fn layer(
        &self,
        reference: &LayerReference,
        purpose: Use,
    ) -> Result<(LayerKey, Arc<SealedLayer>), Refusal> {
        let (key, name, source): (_, _, Arc<dyn ReadAt>) = match reference {
            LayerReference::File { path } => {
                let (file, identity) = LayerFile::open(path, &self.mount, purpose)?;
                (LayerKey::File(identity, purpose), path.to_string_lossy().into_owned(), Arc::new(file))
            }
            LayerReference::Registry { digest, .. } | LayerReference::Object { digest, .. } => {
                let source = self.sources.open(reference)?;
                (LayerKey::Remote(reference.clone()), digest.to_string(), source)
            }
        };
        let layer = self.layers.get_or_make(key.clone(), || {
            SealedLayer::open(&name, source, &Limits::default()).map(Arc::new)
        })?;
        Ok((key, layer))
    }

    /// A plain file that is a whole image.
    pub(crate) fn plain_file(&self, path: &Path) -> Result<PlainFile, Refusal> {
        let (file, _) = file::open(path, &self.mount)?;
        PlainFile::new(path, file).map_err(Refusal::file("use", path))
    }

    /// Lets others share the stack that a disk has after sealing.
    pub(crate) fn offer_stack(&self, references: &[LayerReference], stack: &Arc<Stack>) {
        let keys: Result<Vec<LayerKey>, Refusal> =
            references.iter().map(|reference| self.layer(reference, Use::Disk).map(|(key, _)| key)).collect();
        // Whoever cannot share the stack opens it anew.
        if let Ok(keys) = keys {
            self.stacks.offer(keys, stack);
        }
    }
}

//! An image of the table with what its verbs need to remember.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::seals::Seals;
use crate::image::{Content, Image, WritableDisk};
use crate::refusal::Refusal;

/// An image that is open.
pub(crate) struct OpenImage {
    pub(crate) image: Arc<Image>,
    /// Layers on their way from writable to sealed.
    pub(crate) seals: Seals,
    /// Digests of sealed layers that somebody asked for.
    digests: Mutex<HashMap<String, String>>,
    /// Held while the description changes.
    pub(crate) describing: Mutex<()>,
}

impl OpenImage {
    pub(crate) fn new(image: Image) -> Self {
        Self {
            image: Arc::new(image),
            seals: Seals::default(),
            digests: Mutex::default(),
            describing: Mutex::default(),
        }
    }

    /// The bytes, once they are there.
    pub(crate) fn content(&self) -> Result<&Content, Refusal> {
        let name = self.image.name();
        self.image
            .content()
            .map_err(|unreadable| Refusal::Unreadable { image: name.clone(), reason: unreadable.0 })
    }

    /// The disk that takes writes.
    pub(crate) fn writable(&self) -> Result<&WritableDisk, Refusal> {
        match self.content()? {
            Content::Writable(disk) => Ok(disk),
            Content::Sealed(_) | Content::Plain(_) => Err(Refusal::NotWritable(self.image.name().clone())),
        }
    }

    pub(crate) fn digest(&self, seal_id: &str) -> Option<String> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(seal_id).cloned()
    }

    pub(crate) fn remember_digest(&self, seal_id: &str, digest: &str) {
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests.insert(seal_id.to_owned(), digest.to_owned());
    }
}

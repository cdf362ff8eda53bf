//! What an image consists of, in words that outlive the program: the device table stores exactly this.

use std::path::PathBuf;

use aenv_layers::Overwrite;
use aenv_sources::LayerReference;
use serde::{Deserialize, Serialize};

use super::name::ImageName;

/// Seals that an image remembers after they are done, so that asking again gives the same answer.
pub(crate) const MAX_REMEMBERED_SEALS: usize = 64;

/// Whether reading a layer can take as long as a network takes.
pub(crate) fn is_remote(layer: &LayerReference) -> bool {
    !matches!(layer, LayerReference::File { .. })
}

/// What an image is read and written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Use {
    /// A drive.
    Disk,
    /// The memory of machines, which map it privately and share its pages.
    Memory,
}

/// Where sectors go that the writable layer already holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OverwritePolicy {
    /// Over the old ones.
    #[default]
    InPlace,
    /// Behind the old ones, whose space is given back later.
    Append,
}

impl From<OverwritePolicy> for Overwrite {
    fn from(policy: OverwritePolicy) -> Self {
        match policy {
            OverwritePolicy::InPlace => Self::InPlace,
            OverwritePolicy::Append => Self::Append,
        }
    }
}

/// The writable layer that an image was opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WritableArguments {
    /// Directory of its two files.
    pub(crate) directory: PathBuf,
    /// Size of the disk; none: that of the layers.
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    /// What overwriting does.
    #[serde(default)]
    pub(crate) overwrite: OverwritePolicy,
}

/// What an image was opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenArguments {
    /// Its name.
    pub(crate) name: ImageName,
    /// Its sealed layers, lowest first.
    pub(crate) layers: Vec<LayerReference>,
    /// The layer that takes writes.
    pub(crate) writable: Option<WritableArguments>,
    /// A plain file that is the whole image, instead of layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plain: Option<PathBuf>,
    /// What it is for.
    #[serde(rename = "use")]
    pub(crate) purpose: Use,
    /// Who may open the file, besides root.
    pub(crate) owner: u32,
}

/// A writable layer that takes no more writes and is being sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frozen {
    /// The caller's name for this seal.
    pub(crate) seal_id: String,
    /// Directory of its two files.
    pub(crate) directory: PathBuf,
    /// Where the sealed layer will be.
    pub(crate) sealed_path: PathBuf,
}

/// A seal that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seal {
    /// The caller's name for it.
    pub(crate) seal_id: String,
    /// Where the sealed layer is.
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) size_bytes: u64,
}

/// What an image consists of now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    /// Number of the image; never given twice in a state directory.
    pub(crate) serial: u64,
    /// What it was opened with.
    pub(crate) opened: OpenArguments,
    /// Its sealed layers now, lowest first.
    pub(crate) layers: Vec<LayerReference>,
    /// Layers over them that are being sealed, oldest first.
    pub(crate) frozen: Vec<Frozen>,
    /// Directory of the layer that takes writes.
    pub(crate) writable: Option<PathBuf>,
    /// Seals that are done, oldest first.
    pub(crate) seals: Vec<Seal>,
    /// Set while the image goes away together with its writable layer.
    pub(crate) is_discarded: bool,
}

impl Description {
    /// An image as it is right after its opening.
    pub(crate) fn new(serial: u64, opened: OpenArguments) -> Self {
        Self {
            serial,
            layers: opened.layers.clone(),
            frozen: Vec::new(),
            writable: opened.writable.as_ref().map(|writable| writable.directory.clone()),
            seals: Vec::new(),
            is_discarded: false,
            opened,
        }
    }

    /// The image's name.
    pub(crate) fn name(&self) -> &ImageName {
        &self.opened.name
    }

    /// Whether opening with these arguments means this image: as it was opened, or as it has become by sealing and
    /// growing to `size` bytes.
    pub(crate) fn is_opened_by(&self, arguments: &OpenArguments, size: u64) -> bool {
        if self.opened == *arguments {
            return true;
        }
        let mut asked = arguments.clone();
        if let Some(writable) = &mut asked.writable {
            if writable.size_bytes.take().is_some_and(|asked| asked != size) {
                return false;
            }
        }
        self.frozen.is_empty() && self.as_arguments() == asked
    }

    /// Arguments that would open what the image has become.
    fn as_arguments(&self) -> OpenArguments {
        let writable = self.opened.writable.clone().zip(self.writable.clone());
        OpenArguments {
            layers: self.layers.clone(),
            writable: writable.map(|(opened, directory)| WritableArguments {
                directory,
                size_bytes: None,
                ..opened
            }),
            ..self.opened.clone()
        }
    }

    /// Directories of all writable layers.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.frozen.iter().map(|frozen| &frozen.directory).chain(&self.writable)
    }

    /// The layer that takes writes is frozen, and another takes its place.
    pub(crate) fn with_frozen(&self, frozen: Frozen, next: PathBuf) -> Self {
        let mut changed = self.clone();
        changed.frozen.push(frozen);
        changed.writable = Some(next);
        changed
    }

    /// The oldest frozen layer has become a sealed one.
    pub(crate) fn with_sealed(&self, seal: Seal) -> Self {
        let mut changed = self.clone();
        changed.frozen.retain(|frozen| frozen.seal_id != seal.seal_id);
        changed.layers.push(LayerReference::File { path: seal.path.clone() });
        changed.seals.push(seal);
        let excess = changed.seals.len().saturating_sub(MAX_REMEMBERED_SEALS);
        changed.seals.drain(..excess);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> OpenArguments {
        OpenArguments {
            name: "disk".to_owned().try_into().unwrap(),
            layers: vec![LayerReference::File { path: "/base".into() }],
            writable: Some(WritableArguments {
                directory: "/first".into(),
                size_bytes: None,
                overwrite: OverwritePolicy::InPlace,
            }),
            plain: None,
            purpose: Use::Disk,
            owner: 7,
        }
    }

    #[test]
    fn test_an_image_is_known_by_what_it_was_and_by_what_it_is() {
        let opened = Description::new(2, arguments());
        let frozen =
            Frozen { seal_id: "s".into(), directory: "/first".into(), sealed_path: "/sealed".into() };
        let restacked = opened.with_frozen(frozen, "/second".into());
        let seal = Seal { seal_id: "s".into(), path: "/sealed".into(), size_bytes: 8192 };
        let sealed = restacked.with_sealed(seal);
        assert!(sealed.is_opened_by(&arguments(), 4096));
        let mut now = arguments();
        now.layers.push(LayerReference::File { path: "/sealed".into() });
        assert!(!sealed.is_opened_by(&now, 4096), "the writable layer is another one");
        now.writable.as_mut().unwrap().directory = "/second".into();
        assert!(sealed.is_opened_by(&now, 4096));
        now.writable.as_mut().unwrap().size_bytes = Some(4096);
        assert!(sealed.is_opened_by(&now, 4096) && !sealed.is_opened_by(&now, 8192));
        now.owner = 8;
        assert!(!sealed.is_opened_by(&now, 4096));
    }

    #[test]
    fn test_remembered_seals_are_bounded() {
        let mut description = Description::new(2, arguments());
        for number in 0..2 * MAX_REMEMBERED_SEALS {
            let seal = Seal { seal_id: number.to_string(), path: "/sealed".into(), size_bytes: 0 };
            description = description.with_sealed(seal);
        }
        assert_eq!(description.seals.len(), MAX_REMEMBERED_SEALS);
        assert_eq!(description.seals[0].seal_id, MAX_REMEMBERED_SEALS.to_string());
    }
}

//! How the REST routes describe a file that they wrote. Blocking: reads the metadata back from disk.

use std::path::Path;

use serde::Serialize;

use super::metadata::Metadata;
use crate::filesystem::attributes;

/// One written file, in the form of the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Written {
    path: String,
    name: String,
    #[serde(rename = "type")]
    entry_type: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
}

impl Written {
    /// Describes a regular file at an absolute path.
    pub(crate) fn read(path: &Path) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            entry_type: "file",
            metadata: attributes::read(path),
        }
    }
}

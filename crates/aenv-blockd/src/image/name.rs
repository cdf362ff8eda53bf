//! The name of an image: also the name of its file, so that it has no part that a path could misread.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Most characters of a name.
const MAX_LENGTH: usize = 96;

/// A checked name: `[a-z0-9][a-z0-9._-]{0,95}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ImageName(Arc<str>);

/// Text that is no name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no image name: 1 to 96 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")]
pub(crate) struct BadName(String);

impl ImageName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ImageName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let is_name = bytes.first().is_some_and(is_plain)
            && bytes.len() <= MAX_LENGTH
            && bytes.iter().all(|byte| is_plain(byte) || b"._-".contains(byte));
        if is_name {
            Ok(Self(Arc::from(text)))
        } else {
            Err(BadName(text.chars().take(MAX_LENGTH + 1).collect()))
        }
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_cannot_be_paths() {
        for bad in ["", ".", "..", ".a", "a/b", "A", "a\0", "ä", &"a".repeat(97)] {
            assert!(ImageName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        for good in ["a", "0", "sandbox-1.memory_2", &"a".repeat(96)] {
            assert!(ImageName::try_from(good.to_owned()).is_ok(), "{good:?}");
        }
    }
}

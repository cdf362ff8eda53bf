//! How a caller names a layer, in the words of the control protocol of `aenv-blockd`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Where a layer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerReference {
    /// A file of this host.
    File {
        /// Its absolute path.
        path: PathBuf,
    },
    /// A blob of a registry.
    Registry {
        /// Where the repository is: `https://host/v2/name`.
        repository: String,
        /// The digest of the blob.
        digest: Digest,
        /// The size of the blob.
        size_bytes: u64,
        /// A file in the format of Docker's `config.json`; none means anonymous.
        credentials_path: Option<PathBuf>,
    },
    /// An object of an S3-compatible store.
    Object {
        /// Where the store is: `https://host`, or `https://{bucket}.host` when the bucket is part of the host name.
        endpoint: String,
        /// The bucket.
        bucket: String,
        /// The key of the object.
        key: String,
        /// The digest of the object's content.
        digest: Digest,
        /// The size of the object.
        size_bytes: u64,
        /// A JSON file with `access_key_id`, `secret_access_key`, and optionally `session_token` and `region`; none
        /// means anonymous.
        credentials_path: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_from_the_words_of_the_protocol() {
        let text = format!(
            r#"{{"kind":"registry","repository":"https://host/v2/name","digest":"sha256:{}","size_bytes":7,
                "credentials_path":null}}"#,
            "ab".repeat(32)
        );
        let reference: LayerReference = serde_json::from_str(&text).unwrap();
        let expected = LayerReference::Registry {
            repository: "https://host/v2/name".to_owned(),
            digest: Digest::from_bytes([0xab; 32]),
            size_bytes: 7,
            credentials_path: None,
        };
        assert_eq!(reference, expected);
    }

    #[test]
    fn an_unknown_word_is_refused() {
        for text in [r#"{"kind":"file","path":"/a","digest":"x"}"#, r#"{"kind":"peer","path":"/a"}"#] {
            serde_json::from_str::<LayerReference>(text).unwrap_err();
        }
    }
}

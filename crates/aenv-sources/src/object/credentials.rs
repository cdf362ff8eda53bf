//! The keys of an object store, in a small JSON file of our own.

use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::bounded;
use crate::error::SourceError;

const MAX_FILE: u64 = 64 << 10;

/// What requests are signed with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Credentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    #[serde(default)]
    pub(super) session_token: Option<String>,
    #[serde(default = "default_region")]
    pub(super) region: String,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

impl Credentials {
    /// Reads the file anew each time, so that keys can be changed under a running process.
    pub(super) fn read(path: &Path) -> Result<Self, SourceError> {
        let bytes = bounded::read(path, MAX_FILE)?;
        Self::parse(&bytes)
            .map_err(|reason| SourceError::Credentials { path: path.to_owned(), reason: reason.to_owned() })
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let credentials: Self = serde_json::from_slice(bytes)
            .map_err(|_| "it is not JSON with access_key_id, secret_access_key, session_token and region")?;
        let is_visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let token_is_visible = credentials.session_token.as_deref().is_none_or(is_visible);
        if !is_visible(&credentials.access_key_id) || !is_visible(&credentials.region) || !token_is_visible {
            return Err("a value is empty or holds characters that no header takes");
        }
        Ok(credentials)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_unusable_values_are_refused() {
        for text in [
            "{}",
            r#"{"access_key_id":"a","secret_access_key":"b","endpoint":"c"}"#,
            r#"{"access_key_id":"a b","secret_access_key":"b"}"#,
            r#"{"access_key_id":"a","secret_access_key":"b","session_token":"x\r\ny"}"#,
        ] {
            Credentials::parse(text.as_bytes()).unwrap_err();
        }
        let keys = Credentials::parse(br#"{"access_key_id":"a","secret_access_key":"b"}"#).unwrap();
        assert_eq!(keys.region, "us-east-1");
        assert!(!format!("{keys:?}").contains('b'));
    }
}

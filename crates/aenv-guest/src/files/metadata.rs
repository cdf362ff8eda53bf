//! Metadata that an upload attaches to its files: `X-Metadata-<Key>: <value>` headers. Pure; the disk's side is
//! `filesystem::attributes`.

use std::collections::BTreeMap;

use hyper::header::HeaderMap;

use super::errors::FileError;

/// Names and values, in a stable order.
pub(crate) type Metadata = BTreeMap<String, String>;

const HEADER_PREFIX: &str = "x-metadata-";
/// What the kernel leaves of 255 bytes after `user.e2b.`.
const KEY_BYTES_MAX: usize = 246;
/// What a file system stores for certain.
const TOTAL_BYTES_MAX: usize = 4096;

/// Reads the metadata of an upload. Header names arrive in lower case, and so are the keys.
pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Metadata, FileError> {
    let mut metadata = Metadata::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(FileError::Invalid(format!("metadata key must have 1 to {KEY_BYTES_MAX} bytes")));
        }
        let value = printable(value.as_bytes()).ok_or_else(|| {
            FileError::Invalid(format!("metadata value of {key:?} must be printable ASCII"))
        })?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(FileError::Invalid(format!("metadata key {key:?} is given twice")));
        }
    }
    let total: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > TOTAL_BYTES_MAX {
        return Err(FileError::Invalid(format!("metadata has {total} bytes, more than {TOTAL_BYTES_MAX}")));
    }
    Ok(metadata)
}

fn printable(value: &[u8]) -> Option<String> {
    let is_printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    is_printable.then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn parse(pairs: &[(&str, &[u8])]) -> Result<Metadata, FileError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a valid name");
            headers.append(name, HeaderValue::from_bytes(value).expect("a valid value"));
        }
        of_headers(&headers)
    }

    #[test]
    fn keys_are_lower_case_and_other_headers_ignored() {
        let metadata = parse(&[("X-Metadata-Author", b"me & you"), ("x-other", b"z")]).expect("valid");
        assert_eq!(metadata, Metadata::from([("author".to_owned(), "me & you".to_owned())]));
        assert!(parse(&[]).expect("valid").is_empty());
    }

    #[test]
    fn bounds_are_enforced() {
        let key = |length| format!("x-metadata-{}", "k".repeat(length));
        assert!(parse(&[(&key(246), b"v")]).is_ok());
        assert!(parse(&[(&key(247), b"v")]).is_err());
        assert!(parse(&[(&key(0), b"v")]).is_err());
        assert!(parse(&[(&key(1), &[b'v'; 4095])]).is_ok());
        assert!(parse(&[(&key(1), &[b'v'; 4096])]).is_err());
    }

    #[test]
    fn values_are_printable_and_unique() {
        assert!(parse(&[("x-metadata-a", "é".as_bytes())]).is_err());
        assert!(parse(&[("x-metadata-a", b"\t")]).is_err());
        assert!(parse(&[("x-metadata-a", b"1"), ("x-metadata-a", b"2")]).is_err());
    }
}

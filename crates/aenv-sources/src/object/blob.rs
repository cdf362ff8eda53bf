//! One object of a store, fetched by range with signed or anonymous requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::credentials::Credentials;
use super::signature::SignedRequest;
use crate::error::{Misbehaviour, SourceError};
use crate::escape::escape;
use crate::http::{receive, Deadline, Failure, HttpClient, Place, Wanted};
use crate::remote::Remote;

/// What stands in an endpoint for the name of the bucket, when that is part of the host name.
const PLACEHOLDER: &str = "{bucket}";

/// Where an object is.
pub(crate) struct ObjectLocation<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
}

/// An object of a store.
pub(crate) struct ObjectBlob {
    client: Arc<HttpClient>,
    place: Place,
    size: u64,
    credentials_path: Option<PathBuf>,
}

impl ObjectBlob {
    pub(crate) fn new(
        client: Arc<HttpClient>,
        location: &ObjectLocation<'_>,
        size: u64,
        credentials_path: Option<PathBuf>,
    ) -> Result<Self, SourceError> {
        Ok(Self { client, place: address(location)?, size, credentials_path })
    }

    fn attempt(&self, wanted: Wanted, buffer: &mut [u8], deadline: Deadline) -> Result<(), Failure> {
        let headers = self.headers(wanted)?;
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let response = self.client.get(&self.place, &headers, deadline)?;
        match response.status().as_u16() {
            200 | 206 => receive(&self.place, response, wanted, buffer),
            // The signature names the host, so that it is of no use elsewhere. It happens with a wrong region.
            300..=399 => Err(Failure::Final(self.place.misbehaved(Misbehaviour::Redirect))),
            status => Err(Failure::refused(&self.place, status, response.headers())),
        }
    }

    fn headers(&self, wanted: Wanted) -> Result<Vec<(&'static str, String)>, SourceError> {
        let range = wanted.header();
        let Some(path) = &self.credentials_path else { return Ok(vec![("range", range)]) };
        let request = SignedRequest {
            host: self.place.authority(),
            path: self.place.path(),
            range: &range,
            time: SystemTime::now(),
        };
        Ok(request.headers(&Credentials::read(path)?))
    }
}

impl Remote for ObjectBlob {
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let wanted = Wanted {
            offset,
            length: buffer.len() as u64,
            total: self.size,
            skip_limit: self.client.skip_limit(),
        };
        self.client.attempts().run(&self.place, |deadline| self.attempt(wanted, buffer, deadline))
    }
}

fn address(location: &ObjectLocation<'_>) -> Result<Place, SourceError> {
    let bucket = location.bucket;
    let is_bucket = (3..=255).contains(&bucket.len())
        && bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && !bucket.starts_with('.');
    if !is_bucket || location.key.is_empty() || location.key.len() > 1024 {
        return Err(SourceError::invalid("the bucket or the key is not one that an object store has"));
    }
    let key = escape(location.key, "/");
    let has_placeholder = location.endpoint.contains(PLACEHOLDER);
    let endpoint = Place::configured(&location.endpoint.replace(PLACEHOLDER, bucket))?;
    let base = endpoint.path().trim_end_matches('/');
    let path = if has_placeholder { format!("{base}/{key}") } else { format!("{base}/{bucket}/{key}") };
    endpoint.with_path(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(endpoint: &str, bucket: &str, key: &str) -> Result<String, SourceError> {
        Ok(address(&ObjectLocation { endpoint, bucket, key })?.uri().to_string())
    }

    #[test]
    fn the_bucket_is_in_the_path_or_in_the_host() {
        let path_style = place("https://host:9000/", "bucket", "a/b c").unwrap();
        assert_eq!(path_style, "https://host:9000/bucket/a/b%20c");
        let host_style = place("https://{bucket}.host", "bucket", "é").unwrap();
        assert_eq!(host_style, "https://bucket.host/%C3%A9");
    }

    #[test]
    fn odd_names_are_refused() {
        for (bucket, key) in [("b", "k"), ("a/b", "k"), ("a@b", "k"), ("../x", "k"), ("bucket", "")] {
            assert!(place("https://host", bucket, key).is_err(), "{bucket} {key}");
        }
    }
}

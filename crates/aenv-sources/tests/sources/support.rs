//! Builders that the tests share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aenv_layers::ReadAt;
use aenv_sources::{
    CacheOptions, Digest, HttpOptions, LayerReference, SourceError, SourceFactory, SourceOptions,
};
use sha2::{Digest as _, Sha256};

/// Says that a test proves nothing here. In CI, which has all that tests need, that is a failure.
pub(crate) fn cannot_test(missing: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must have what this test needs: {missing}");
    eprintln!("skipped: needs {missing}");
}

/// Bytes that look random and are the same in every run.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn digest(content: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(content).into())
}

/// A blob of a registry that listens at `url`.
pub(crate) fn registry(url: &str, content: &[u8], credentials: Option<&Path>) -> LayerReference {
    LayerReference::Registry {
        repository: format!("{url}/v2/team/app"),
        digest: digest(content),
        size_bytes: content.len() as u64,
        credentials_path: credentials.map(Path::to_owned),
    }
}

/// Settings that find out soon.
pub(crate) fn impatient() -> HttpOptions {
    HttpOptions {
        attempt_timeout: Duration::from_millis(700),
        patience: Duration::from_secs(2),
        skip_limit_bytes: 1000,
        ..HttpOptions::default()
    }
}

/// Settings that a busy machine does not break.
fn patient() -> HttpOptions {
    let (attempt_timeout, patience) = (Duration::from_secs(20), Duration::from_secs(40));
    HttpOptions { attempt_timeout, patience, ..impatient() }
}

/// Without a cache, so that each read is a request.
pub(crate) fn uncached() -> SourceFactory {
    SourceFactory::new(SourceOptions { http: patient(), ..SourceOptions::default() }).unwrap()
}

/// The same, for reads that must fail in time.
pub(crate) fn uncached_impatient() -> SourceFactory {
    SourceFactory::new(SourceOptions { http: impatient(), ..SourceOptions::default() }).unwrap()
}

pub(crate) fn cached(directory: &Path, capacity: u64) -> SourceFactory {
    let mut cache = CacheOptions::new(directory.to_owned(), capacity);
    cache.chunk_bytes = 4096;
    cache.free_floor_bytes = 0;
    SourceFactory::new(SourceOptions { http: patient(), cache: Some(cache), ..SourceOptions::default() })
        .unwrap()
}

/// Reads a range, or says why it cannot be had.
pub(crate) fn read(source: &Arc<dyn ReadAt>, offset: usize, length: usize) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0xee; length];
    let mut done = 0;
    while done < length {
        match source.read_at((offset + done) as u64, &mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => return Err(error.downcast().expect("a source fails with its own error")),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Writes a file of credentials and returns its path.
pub(crate) fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

//! Turns references into open sources. One factory per process: it owns what sources share.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use aenv_layers::{LocalFile, ReadAt};

use crate::cache::{BlockCache, CacheOptions, CachedBlob, Statistics};
use crate::digest::Digest;
use crate::download::{Download, DownloadOptions, Downloader};
use crate::error::SourceError;
use crate::http::{HttpClient, HttpOptions};
use crate::object::{ObjectBlob, ObjectLocation};
use crate::reference::LayerReference;
use crate::registry::{RegistryBlob, Repository, TokenStore};
use crate::remote::Remote;

/// What all sources of a process share.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Without a cache every read of a remote layer is a request.
    pub cache: Option<CacheOptions>,
    /// How remotes are spoken to.
    pub http: HttpOptions,
    /// How whole blobs are fetched in the background. It needs a cache.
    pub download: DownloadOptions,
}

/// A repository and how we log in there.
type RepositoryKey = (String, Option<PathBuf>);

/// Opens sources.
pub struct SourceFactory {
    client: Arc<HttpClient>,
    tokens: Arc<TokenStore>,
    repositories: Mutex<HashMap<RepositoryKey, Weak<Repository>>>,
    cache: Option<BlockCache>,
    /// There with the cache, which is where downloads go.
    downloader: Option<Downloader>,
    download_options: DownloadOptions,
}

impl SourceFactory {
    /// Prepares what sources share.
    pub fn new(options: SourceOptions) -> Result<Self, SourceError> {
        let cache = options.cache.as_ref().map(BlockCache::open).transpose()?;
        let downloader = cache.as_ref().map(|_| Downloader::start(&options.download)).transpose();
        Ok(Self {
            downloader: downloader.map_err(SourceError::thread)?,
            download_options: options.download,
            client: Arc::new(HttpClient::new(options.http)?),
            tokens: Arc::default(),
            repositories: Mutex::default(),
            cache,
        })
    }

    /// Opens a source. Nothing is asked of a remote before the first read.
    pub fn open(&self, reference: &LayerReference) -> Result<Arc<dyn ReadAt>, SourceError> {
        match reference {
            LayerReference::File { path } => open_file(path),
            LayerReference::Registry { digest, size_bytes, .. }
            | LayerReference::Object { digest, size_bytes, .. } => {
                self.open_remote(*digest, *size_bytes, self.remote(reference)?)
            }
        }
    }

    /// Opens a blob that comes from elsewhere, a peer for instance, through the cache.
    pub fn open_remote(
        &self,
        digest: Digest,
        size: u64,
        remote: Arc<dyn Remote>,
    ) -> Result<Arc<dyn ReadAt>, SourceError> {
        let Some(blob) = self.attach(digest, size, &remote)? else {
            return Ok(Arc::new(Uncached { remote, size }));
        };
        if let Some(downloader) = self.downloader.as_ref().filter(|_| self.download_options.is_automatic) {
            downloader.submit(&blob, self.download_options.delay);
        }
        Ok(blob)
    }

    /// Fetches a whole blob in the background, beginning soon. The source must be read meanwhile: it is returned too.
    /// A file, and anything without a cache, is not downloaded.
    pub fn download(
        &self,
        reference: &LayerReference,
    ) -> Result<(Arc<dyn ReadAt>, Option<Download>), SourceError> {
        let (LayerReference::Registry { digest, size_bytes, .. }
        | LayerReference::Object { digest, size_bytes, .. }) = reference
        else {
            return Ok((self.open(reference)?, None));
        };
        let remote = self.remote(reference)?;
        match self.attach(*digest, *size_bytes, &remote)? {
            Some(blob) => {
                let submit = |downloader: &Downloader| downloader.submit(&blob, Duration::ZERO);
                let download = self.downloader.as_ref().map(submit);
                Ok((blob, download))
            }
            None => Ok((Arc::new(Uncached { remote, size: *size_bytes }), None)),
        }
    }

    fn remote(&self, reference: &LayerReference) -> Result<Arc<dyn Remote>, SourceError> {
        match reference {
            LayerReference::File { .. } => Err(SourceError::invalid("a file is not remote")),
            LayerReference::Registry { repository, digest, size_bytes, credentials_path } => {
                let repository = self.repository(repository, credentials_path.as_deref())?;
                Ok(Arc::new(RegistryBlob::new(repository, *digest, *size_bytes)?))
            }
            LayerReference::Object { endpoint, bucket, key, size_bytes, credentials_path, .. } => {
                let location = ObjectLocation { endpoint, bucket, key };
                let client = Arc::clone(&self.client);
                Ok(Arc::new(ObjectBlob::new(client, &location, *size_bytes, credentials_path.clone())?))
            }
        }
    }

    fn attach(
        &self,
        digest: Digest,
        size: u64,
        remote: &Arc<dyn Remote>,
    ) -> Result<Option<Arc<CachedBlob>>, SourceError> {
        let Some(cache) = &self.cache else { return Ok(None) };
        match cache.attach(digest, size, Arc::clone(remote)) {
            Ok(blob) => Ok(Some(Arc::new(blob))),
            // A cache that cannot take the blob is no reason to fail.
            Err(SourceError::File { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a blob from being evicted as long as there are others, until the result is dropped.
    pub fn pin(&self, digest: Digest) -> Pin {
        Pin { _use: self.cache.as_ref().map(|cache| cache.pin(digest)) }
    }

    /// Makes durable what is in the cache now. It happens by itself too, now and then and at the end.
    pub fn checkpoint(&self) {
        if let Some(cache) = &self.cache {
            cache.checkpoint();
        }
    }

    /// Evicts at once what would be evicted soon.
    pub fn tidy(&self) {
        if let Some(cache) = &self.cache {
            cache.tidy();
        }
    }

    /// What the cache did and holds; all zero without one.
    pub fn statistics(&self) -> Statistics {
        self.cache.as_ref().map(BlockCache::statistics).unwrap_or_default()
    }

    /// The layers of an image come from one repository, which is asked once how it wants to be asked.
    fn repository(&self, address: &str, credentials: Option<&Path>) -> Result<Arc<Repository>, SourceError> {
        let key = (address.to_owned(), credentials.map(Path::to_owned));
        let mut repositories = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(repository) = repositories.get(&key).and_then(Weak::upgrade) {
            return Ok(repository);
        }
        let (client, tokens) = (Arc::clone(&self.client), Arc::clone(&self.tokens));
        let repository = Arc::new(Repository::new(address, key.1.clone(), client, tokens)?);
        repositories.retain(|_, repository| repository.strong_count() > 0);
        repositories.insert(key, Arc::downgrade(&repository));
        Ok(repository)
    }
}

/// A blob that is spared by eviction while there are others.
pub struct Pin {
    _use: Option<crate::cache::Use>,
}

/// A remote blob without a cache: each read is a request.
struct Uncached {
    remote: Arc<dyn Remote>,
    size: u64,
}

impl ReadAt for Uncached {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.size.saturating_sub(offset);
        let length = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        if length > 0 {
            self.remote.fetch(offset, &mut buffer[..length])?;
        }
        Ok(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

fn open_file(path: &Path) -> Result<Arc<dyn ReadAt>, SourceError> {
    if !path.is_absolute() {
        return Err(SourceError::invalid(format!("{} is not absolute", path.display())));
    }
    let failed = |error| SourceError::file(path, error);
    let file = std::fs::File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    Ok(Arc::new(LocalFile::from(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer");
        std::fs::write(&path, b"0123456789").unwrap();
        let factory = SourceFactory::new(SourceOptions::default()).unwrap();
        let source = factory.open(&LayerReference::File { path }).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(source.read_at(3, &mut buffer).unwrap(), 4);
        assert_eq!((&buffer, source.length().unwrap()), (b"3456", 10));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let factory = SourceFactory::new(SourceOptions::default()).unwrap();
        for path in [directory.path().to_owned(), directory.path().join("absent"), "relative".into()] {
            assert!(factory.open(&LayerReference::File { path: path.clone() }).is_err(), "{path:?}");
        }
    }
}

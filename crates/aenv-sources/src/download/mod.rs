//! Fetches whole blobs into the cache behind the backs of their readers, and compares them with their digest. It never
//! delays a reader, and stops when nobody reads the blob any more.

mod job;
mod queue;
mod throttle;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub use job::DownloadState;
pub(crate) use queue::Downloader;

use crate::cache::CachedBlob;
use job::Job;

/// How blobs are fetched in the background.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// Fetch every blob that is opened. Otherwise only those that are asked for.
    pub is_automatic: bool,
    /// How long after a blob was opened its download begins: a guest that starts has the line for itself.
    pub delay: Duration,
    /// The most that all downloads take together; none means all there is.
    pub bytes_per_second: Option<u64>,
    /// How many blobs are fetched at once.
    pub workers: usize,
    /// How often a blob is tried before it is left to its readers.
    pub tries: u32,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            is_automatic: false,
            delay: Duration::from_secs(20),
            bytes_per_second: None,
            workers: 2,
            tries: 5,
        }
    }
}

/// A download that was asked for. Dropping it does not stop the download; closing the blob does.
#[derive(Clone)]
pub struct Download(Arc<job::Progress>);

impl Download {
    /// What became of it so far.
    pub fn state(&self) -> DownloadState {
        self.0.state()
    }

    /// Waits until the download has ended, or the time is over, and says what became of it.
    pub fn wait(&self, timeout: Duration) -> DownloadState {
        self.0.wait(timeout)
    }
}

impl Downloader {
    /// Has a blob fetched, once however often this is asked.
    pub(crate) fn submit(&self, blob: &Arc<CachedBlob>, delay: Duration) -> Download {
        let weak: Weak<CachedBlob> = Arc::downgrade(blob);
        Download(self.add(Job::new(weak, blob.entry(), Instant::now() + delay)))
    }
}

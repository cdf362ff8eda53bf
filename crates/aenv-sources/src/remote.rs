//! The seam to what is far away: a registry, an object store, later a peer.

use crate::error::SourceError;

/// A blob that can be fetched in ranges.
///
/// An implementer promises to fill the whole buffer with the bytes of that range, as far as it can tell, or to fail;
/// to end within a bounded time; and to be callable from many threads at once. The caller promises that the range lies
/// within the blob and is not empty, and fetches nothing twice at the same time.
pub trait Remote: Send + Sync {
    /// Fills the buffer with the bytes from `offset` on.
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError>;
}

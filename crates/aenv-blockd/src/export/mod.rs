//! The seam between the device table and whatever shows images to processes: files of a FUSE mount, block devices.

mod by_purpose;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use by_purpose::ByPurpose;

use crate::image::Image;

/// Somebody still has the image open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{users} openers still use the image")]
pub(crate) struct InUse {
    /// How many.
    pub(crate) users: usize,
}

/// The image could not be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotShown(pub(crate) String);

/// Shows images to processes.
///
/// An implementer promises that all users of an image share one object, and that bytes acknowledged to one of them are
/// in the layers. It may be called from many threads; calls for one image come one after the other.
pub(crate) trait Exporter: Send + Sync {
    /// What `hello` calls it.
    fn kinds(&self) -> Vec<&'static str>;

    /// Where processes find an image once it is shown.
    fn path(&self, image: &Image) -> PathBuf;

    /// Shows an image whose bytes are there. After an error, nothing is left of the attempt.
    fn publish(&self, image: &Arc<Image>) -> Result<(), NotShown>;

    /// Shows an image again that an earlier server had open. Returns at once, whatever it has to wait for; whoever asks
    /// for bytes that are still on their way waits.
    fn republish(&self, image: &Arc<Image>);

    /// Waits until the image is shown.
    fn await_shown(&self, image: &Image) -> Result<(), NotShown>;

    /// Stops to show an image. With `force`, those who have it open get errors from now on.
    fn withdraw(&self, image: &Image, force: bool) -> Result<(), InUse>;

    /// How many have each of the images open.
    fn users(&self, images: &[&Image]) -> Vec<usize>;

    /// Whether an image that is shown may become larger.
    fn can_grow(&self, image: &Image) -> bool;

    /// Brings into the layers what users have written and the kernel still keeps.
    fn collect_writes(&self, image: &Image) -> io::Result<()>;

    /// Waits until nobody has it open, and says how many still have when that takes too long.
    fn wait_unused(&self, image: &Image, patience: Duration) -> usize;

    /// Tells users that the image has grown.
    fn announce_size(&self, image: &Image);

    /// Puts bytes where the next reader finds them without asking. Says whether there was such a place.
    fn populate(&self, image: &Image, offset: u64, bytes: &[u8]) -> bool;
}

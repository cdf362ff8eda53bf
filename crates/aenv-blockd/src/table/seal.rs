//! The verbs `seal` and `sealed`: the running disk gets a new writable layer, and the old one becomes a sealed file.
//!
//! Order: the new layer is made, the table says so, the disk takes it; then, in the background, the old layer is
//! sealed, gets its name, replaces its writable form in the disk, and the table says so. A crash between any two steps
//! leaves what `finish_moved_seals` and `assemble_again` put together.

use std::fs::{self, File};
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Instant;

use aenv_layers::{View, WritableLayer};

use super::assemble::{policy_of, seal_of, MAX_SEALED_LAYERS};
use super::open::check_path;
use super::open_image::OpenImage;
use super::seals::Pending;
use super::{pair, Table};
use crate::digest;
use crate::image::{Description, Frozen, ImageName, Seal, WritableArguments, WritableDisk};
use crate::log;
use crate::refusal::Refusal;

/// Most characters of the caller's name for a seal.
const MAX_SEAL_ID: usize = 128;

/// What to seal, and where everything goes.
#[derive(Clone, Debug)]
pub(crate) struct SealOrder {
    pub(crate) image: ImageName,
    pub(crate) seal_id: String,
    pub(crate) sealed_path: PathBuf,
    pub(crate) next_directory: PathBuf,
}

/// A seal that is done.
pub(crate) struct Sealed {
    pub(crate) seal: Seal,
    pub(crate) digest: Option<String>,
}

impl Table {
    /// Freezes the writable layer under a new one, and begins to seal it. Returns for how many microseconds writes
    /// waited.
    pub(crate) fn seal(self: &Arc<Self>, order: &SealOrder) -> Result<u64, Refusal> {
        check(order)?;
        let _changing = self.changing.lock(&order.image);
        let open = self.get(&order.image)?;
        let description = open.image.description();
        if is_known(&description, order)? {
            self.start_sealing(&open);
            return Ok(open.seals.frozen_microseconds(&order.seal_id));
        }
        let disk = open.writable()?;
        let Some(writable) = &description.opened.writable else {
            return Err(Refusal::NotWritable(order.image.clone()));
        };
        check_room(&description, order)?;
        self.collect_writes(&open)?;
        let top = self.make_next(order, disk, writable)?;
        let microseconds = self.restack(&open, disk, order, top).inspect_err(|_| {
            // The first failure is the one to report; what stays is an empty layer.
            let _ = pair::remove(&order.next_directory);
            self.claims.release(&order.next_directory);
        })?;
        self.start_sealing(&open);
        log::info(
            "layer_frozen",
            &[
                ("image", &order.image.as_str()),
                ("seal_id", &order.seal_id),
                ("frozen_microseconds", &microseconds),
            ],
        );
        Ok(microseconds)
    }

    /// Waits until a layer is sealed and the image reads from it.
    pub(crate) fn sealed(
        self: &Arc<Self>,
        name: &ImageName,
        seal_id: &str,
        wants_digest: bool,
    ) -> Result<Sealed, Refusal> {
        let open = self.get(name)?;
        // What an earlier program froze is known once the image is put together.
        open.content()?;
        // A failed attempt is made again by whoever still asks for it.
        self.start_sealing(&open);
        open.seals.wait(Some(seal_id))?;
        let description = open.image.description();
        let Some(seal) = description.seals.iter().find(|seal| seal.seal_id == seal_id) else {
            return Err(Refusal::UnknownSeal { image: name.clone(), seal_id: seal_id.to_owned() });
        };
        let digest = match wants_digest {
            true => Some(digest_of(&open, seal)?),
            false => None,
        };
        Ok(Sealed { seal: seal.clone(), digest })
    }

    /// Seals in the background whatever is frozen, unless somebody does so already.
    pub(super) fn start_sealing(self: &Arc<Self>, open: &Arc<OpenImage>) {
        if !open.seals.begin() {
            return;
        }
        let (table, image) = (Arc::clone(self), Arc::clone(open));
        let spawned = thread::Builder::new().name("seal".into()).spawn(move || table.seal_pending(&image));
        if spawned.is_err() {
            open.seals.fail(Refusal::TooMany("there are no threads left to seal with"));
        }
    }

    fn seal_pending(&self, open: &OpenImage) {
        while let Some(pending) = open.seals.oldest() {
            let work = AssertUnwindSafe(|| self.seal_one(open, &pending));
            let outcome = catch_unwind(work)
                .unwrap_or_else(|_| Err(Refusal::Bug("a thread panicked while it sealed a layer".into())));
            let facts: [(&str, &dyn log::Fact); 2] =
                [("image", &open.image.name().as_str()), ("seal_id", &pending.frozen.seal_id)];
            match outcome {
                Ok(()) => {
                    log::info("layer_sealed", &facts);
                    open.seals.complete();
                }
                Err(error) => {
                    let reason = error.sentence();
                    log::error("layer_not_sealed", &[facts[0], facts[1], ("reason", &reason)]);
                    return open.seals.fail(error);
                }
            }
        }
    }

    fn seal_one(&self, open: &OpenImage, pending: &Pending) -> Result<(), Refusal> {
        let disk = open.writable()?;
        let mut progress = pending.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Frozen { directory, sealed_path, .. } = &pending.frozen;
        if !progress.is_moved {
            pending.layer.seal()?;
            move_durably(&directory.join(pair::DATA), sealed_path)?;
            progress.is_moved = true;
        }
        if !progress.is_adopted {
            let layer = self.layers.layer_file(sealed_path)?;
            disk.disk().adopt(&pending.layer, layer)?;
            progress.is_adopted = true;
        }
        pair::remove(directory)?;
        let seal = seal_of(&pending.frozen)?;
        self.redescribe(open, |now| now.with_sealed(seal))?;
        self.claims.release(directory);
        self.layers.offer_stack(&open.image.description().layers, &disk.disk().base());
        Ok(())
    }

    fn make_next(
        &self,
        order: &SealOrder,
        disk: &WritableDisk,
        writable: &WritableArguments,
    ) -> Result<WritableLayer, Refusal> {
        let directory = &order.next_directory;
        let is_new = pair::make_directory(directory)?;
        self.claims.take(directory)?;
        let disk = disk.disk();
        // An empty layer is what an order leaves that was interrupted before the table knew of it.
        let made = match pair::holds_writes(directory) {
            true => Err(Refusal::Exists(directory.clone())),
            false => pair::create(directory, disk.top().id(), disk.size(), policy_of(writable), self.boot),
        };
        made.inspect_err(|_| {
            if is_new {
                let _ = pair::remove(directory);
            }
            self.claims.release(directory);
        })
    }

    fn restack(
        &self,
        open: &OpenImage,
        disk: &WritableDisk,
        order: &SealOrder,
        top: WritableLayer,
    ) -> Result<u64, Refusal> {
        let before = open.image.description();
        let Some(directory) = before.writable.clone() else {
            return Err(Refusal::NotWritable(order.image.clone()));
        };
        let frozen =
            Frozen { seal_id: order.seal_id.clone(), directory, sealed_path: order.sealed_path.clone() };
        self.redescribe(open, |now| now.with_frozen(frozen.clone(), order.next_directory.clone()))?;
        let start = Instant::now();
        match disk.disk().restack(Arc::new(top)) {
            Ok(layer) => {
                let microseconds = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                open.seals.add(frozen, layer, microseconds);
                Ok(microseconds)
            }
            Err(error) => {
                self.redescribe(open, |_| Description::clone(&before))?;
                Err(error.into())
            }
        }
    }
}

fn check(order: &SealOrder) -> Result<(), Refusal> {
    check_path(&order.sealed_path)?;
    check_path(&order.next_directory)?;
    let id = &order.seal_id;
    if id.is_empty() || id.len() > MAX_SEAL_ID || id.chars().any(char::is_control) {
        return Err(Refusal::argument("\"seal_id\" has 1 to 128 printable characters"));
    }
    Ok(())
}

/// Whether this seal was ordered before.
fn is_known(description: &Description, order: &SealOrder) -> Result<bool, Refusal> {
    let pending = description.frozen.iter().map(|one| (&one.seal_id, &one.sealed_path));
    let done = description.seals.iter().map(|one| (&one.seal_id, &one.path));
    match pending.chain(done).find(|(seal_id, _)| **seal_id == order.seal_id) {
        None => Ok(false),
        Some((_, path)) if *path == order.sealed_path => Ok(true),
        Some(_) => Err(Refusal::argument(format!("seal {:?} was ordered with another path", order.seal_id))),
    }
}

fn check_room(description: &Description, order: &SealOrder) -> Result<(), Refusal> {
    let layers = description.layers.len() + description.frozen.len() + 1;
    if layers > MAX_SEALED_LAYERS {
        let (image, limit) = (order.image.clone(), MAX_SEALED_LAYERS);
        return Err(Refusal::TooManyLayers { image, layers, limit });
    }
    if order.sealed_path.symlink_metadata().is_ok() {
        return Err(Refusal::Exists(order.sealed_path.clone()));
    }
    let parent = order.sealed_path.parent().unwrap_or(Path::new("/"));
    match parent.is_dir() {
        true => Ok(()),
        false => Err(Refusal::MissingFile(parent.to_owned())),
    }
}

/// Gives a file its new name, durably; on another file system it is copied.
fn move_durably(from: &Path, to: &Path) -> Result<(), Refusal> {
    match fs::rename(from, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let mut part = to.as_os_str().to_owned();
            part.push(".part");
            let part = Path::new(&part);
            copy_durably(from, part).map_err(Refusal::file("copy the sealed layer to", part))?;
            fs::rename(part, to).map_err(Refusal::file("create", to))?;
        }
        Err(error) => return Err(Refusal::file("create", to)(error)),
    }
    pair::sync_parent(to)?;
    pair::sync_parent(from)
}

fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    let copied = fs::copy(from, to).and_then(|_| File::open(to)?.sync_all());
    if copied.is_err() {
        // The first failure is the one to report; the next attempt writes over what stays.
        let _ = fs::remove_file(to);
    }
    copied
}

fn digest_of(open: &OpenImage, seal: &Seal) -> Result<String, Refusal> {
    if let Some(digest) = open.digest(&seal.seal_id) {
        return Ok(digest);
    }
    let digest = digest::of_file(&seal.path).map_err(Refusal::file("read", &seal.path))?;
    open.remember_digest(&seal.seal_id, &digest);
    Ok(digest)
}

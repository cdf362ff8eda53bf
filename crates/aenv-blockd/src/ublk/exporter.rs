//! Disks as block devices.

use std::collections::HashMap;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::abi::DeviceDescription;
use super::attach::{Attached, Workshop};
use super::control::{ControlDevice, UblkError};
use super::nodes::NodeDirectory;
use super::openers;
use super::ownership::{survey, Fate, Owner};
use super::page_cache;
use crate::export::{Exporter, InUse, NotShown};
use crate::image::Image;
use crate::log;

/// Programs that look at every disk for a moment (udev does) are no users; they are waited for so often, so long.
const GLANCES: usize = 10;
const GLANCE: Duration = Duration::from_millis(20);

/// Shows disks as block devices in the directory beside the mount.
pub(crate) struct UblkExporter {
    shared: Arc<Shared>,
    shown: Mutex<HashMap<u64, Arc<Showing>>>,
    /// Devices of an earlier server, by image.
    left: Mutex<HashMap<u64, DeviceDescription>>,
}

struct Shared {
    workshop: Workshop,
    owner: Owner,
}

/// How far an image has come.
#[derive(Default)]
struct Showing {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
enum Progress {
    #[default]
    Underway,
    Shown(Attached),
    Failed(NotShown),
}

impl UblkExporter {
    /// Finds the devices that an earlier server left. Those that cannot have users are removed.
    pub(crate) fn begin(state: &Path, mount: &Path) -> Result<Self, UblkError> {
        let workshop = Workshop { control: ControlDevice::open()?, nodes: NodeDirectory::beside(mount)? };
        let owner =
            Owner::load(state).map_err(|error| UblkError::System("read whose devices are ours", error))?;
        let mut left = HashMap::new();
        for device in survey(&workshop.control)? {
            match owner.judge(&device) {
                Fate::Leave => {}
                Fate::Adopt(serial) => drop(left.insert(serial, device)),
                Fate::Remove => workshop.remove(device.device),
            }
        }
        workshop.nodes.clear().map_err(|error| UblkError::System("clear the directory of devices", error))?;
        let shared = Arc::new(Shared { workshop, owner });
        Ok(Self { shared, shown: Mutex::default(), left: Mutex::new(left) })
    }

    /// Removes devices whose images nobody has shown again.
    pub(crate) fn remove_rest(&self) {
        for (_, device) in hold(&self.left).drain() {
            self.shared.workshop.remove(device.device);
        }
    }

    fn showing(&self, image: &Image) -> Option<Arc<Showing>> {
        hold(&self.shown).get(&image.serial()).cloned()
    }

    fn insert(&self, image: &Image, showing: &Arc<Showing>) {
        hold(&self.shown).insert(image.serial(), Arc::clone(showing));
    }
}

/// Removes all devices of a state directory, for a server that shows disks in another way.
pub(crate) fn clean(state: &Path, mount: &Path) -> Result<(), UblkError> {
    if !Owner::exists(state) {
        return Ok(());
    }
    match UblkExporter::begin(state, mount) {
        // Without the driver there are no devices.
        Err(UblkError::NoDriver(_)) => Ok(()),
        other => other.map(|exporter| exporter.remove_rest()),
    }
}

impl Shared {
    fn attach(&self, image: &Arc<Image>) -> Result<Attached, NotShown> {
        let size = image.content().map_err(|unreadable| NotShown(unreadable.to_string()))?.size();
        let mark = self.owner.mark(image.serial());
        let mark = mark.ok_or_else(|| NotShown("this state directory has opened too many images".into()))?;
        let attached = self.workshop.attach(image, size, mark).map_err(|error| not_shown(&error))?;
        self.reveal(image, attached)
    }

    fn adopt(&self, image: &Arc<Image>, device: &DeviceDescription) -> Result<Attached, NotShown> {
        let attached = self.workshop.adopt(image, device).map_err(|error| not_shown(&error))?;
        log::info(
            "device_adopted",
            &[("image", &image.name().as_str()), ("device", &u64::from(device.device))],
        );
        self.reveal(image, attached)
    }

    /// Gives a device its place among the nodes.
    fn reveal(&self, image: &Image, attached: Attached) -> Result<Attached, NotShown> {
        match self.workshop.nodes.put(image, attached.disk) {
            Ok(()) => Ok(attached),
            Err(error) => {
                self.workshop.detach(attached);
                Err(NotShown(format!("cannot make its device node: {error}")))
            }
        }
    }

    /// Hides an image that nobody uses, and leaves it as it was when somebody does.
    fn hide(&self, image: &Image, attached: &Attached) -> Result<(), InUse> {
        let (nodes, name) = (&self.workshop.nodes, image.name());
        // Whoever opens it from now on does not find it; whoever did so before is counted.
        let hidden = nodes.hide(name);
        let mut users = self.users(image, attached);
        for _ in 0..GLANCES {
            if users == 0 {
                return Ok(());
            }
            thread::sleep(GLANCE);
            users = self.users(image, attached);
        }
        if let Err(error) = hidden.and_then(|()| nodes.reveal(name)) {
            let reason = error.to_string();
            log::error("device_node_lost", &[("image", &name.as_str()), ("reason", &reason)]);
        }
        Err(InUse { users })
    }

    /// Users of an image whose node is hidden.
    fn users(&self, image: &Image, attached: &Attached) -> usize {
        let openers = openers::count().get(&attached.disk).copied().unwrap_or(0);
        openers + usize::from(openers::is_claimed(&self.workshop.nodes.hidden(image.name())))
    }
}

fn not_shown(error: &UblkError) -> NotShown {
    NotShown(log::chain(error))
}

impl Exporter for UblkExporter {
    fn kinds(&self) -> Vec<&'static str> {
        vec!["ublk"]
    }

    fn path(&self, image: &Image) -> PathBuf {
        self.shared.workshop.nodes.path(image.name())
    }

    fn publish(&self, image: &Arc<Image>) -> Result<(), NotShown> {
        let attached = self.shared.attach(image)?;
        self.insert(image, &Arc::new(Showing::new(Progress::Shown(attached))));
        Ok(())
    }

    fn republish(&self, image: &Arc<Image>) {
        let showing = Arc::new(Showing::default());
        self.insert(image, &showing);
        let left = hold(&self.left).remove(&image.serial());
        let (shared, asked) = (Arc::clone(&self.shared), Arc::clone(image));
        image.pool.submit(Box::new(move |_| {
            let attempt = AssertUnwindSafe(|| match left {
                Some(device) => shared.adopt(&asked, &device),
                None => shared.attach(&asked),
            });
            let outcome = catch_unwind(attempt).unwrap_or_else(|_| Err(NotShown("a thread panicked".into())));
            if let Err(error) = &outcome {
                let (image, reason) = (asked.name().as_str(), error.to_string());
                log::error("image_not_shown", &[("image", &image), ("reason", &reason)]);
            }
            showing.set(outcome.map_or_else(Progress::Failed, Progress::Shown));
        }));
    }

    fn await_shown(&self, image: &Image) -> Result<(), NotShown> {
        let Some(showing) = self.showing(image) else { return Err(NotShown("it was withdrawn".into())) };
        let progress = showing.settled();
        match &*progress {
            Progress::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn withdraw(&self, image: &Image, force: bool) -> Result<(), InUse> {
        let Some(showing) = self.showing(image) else { return Ok(()) };
        let mut progress = showing.settled();
        if let (Progress::Shown(attached), false) = (&*progress, force) {
            self.shared.hide(image, attached)?;
        }
        let gone = Progress::Failed(NotShown("it was withdrawn".into()));
        let last = std::mem::replace(&mut *progress, gone);
        drop(progress);
        // The node goes first: once the device is deleted, its number may be another disk's.
        if let Err(error) = self.shared.workshop.nodes.remove(image.name()) {
            let (image, reason) = (image.name().as_str(), error.to_string());
            log::warning("device_node_not_removed", &[("image", &image), ("reason", &reason)]);
        }
        if let Progress::Shown(attached) = last {
            self.shared.workshop.detach(attached);
        }
        hold(&self.shown).remove(&image.serial());
        Ok(())
    }

    fn users(&self, images: &[&Image]) -> Vec<usize> {
        if images.is_empty() {
            return Vec::new();
        }
        let openers = openers::count();
        let count = |image: &&Image| {
            let showing = self.showing(image)?;
            let progress = hold(&showing.progress);
            match &*progress {
                Progress::Shown(attached) => openers.get(&attached.disk).copied(),
                _ => None,
            }
        };
        images.iter().map(|image| count(image).unwrap_or(0)).collect()
    }

    fn can_grow(&self, _image: &Image) -> bool {
        false
    }

    fn collect_writes(&self, image: &Image) -> io::Result<()> {
        match image.is_writable() {
            true => page_cache::write_out(&self.path(image)),
            false => Ok(()),
        }
    }

    fn wait_unused(&self, image: &Image, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        loop {
            let users: usize = self.users(&[image]).into_iter().sum();
            if users == 0 || Instant::now() >= deadline {
                return users;
            }
            thread::sleep(GLANCE);
        }
    }

    fn announce_size(&self, _image: &Image) {}

    fn populate(&self, _image: &Image, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }
}

impl Showing {
    fn new(progress: Progress) -> Self {
        Self { progress: Mutex::new(progress), changed: Condvar::new() }
    }

    fn set(&self, progress: Progress) {
        *hold(&self.progress) = progress;
        self.changed.notify_all();
    }

    /// Waits until the image is shown, or will not be.
    fn settled(&self) -> MutexGuard<'_, Progress> {
        let mut progress = hold(&self.progress);
        while matches!(*progress, Progress::Underway) {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress
    }
}

// Changes are single assignments: a panic elsewhere cannot leave half of one.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The verbs `stat` and `list`: what the table knows, in the words of the protocol.

use serde_json::{json, Value};

use super::open_image::OpenImage;
use super::Table;
use crate::image::{Content, Image, ImageName};
use crate::refusal::Refusal;

/// Images in one answer, which has to fit into a frame.
const MAX_LISTED: usize = 2000;

impl Table {
    /// Everything about one image.
    pub(crate) fn stat(&self, name: &ImageName) -> Result<Value, Refusal> {
        let open = self.get(name)?;
        let description = open.image.description();
        let users = self.exporter.users(&[&open.image]).into_iter().sum();
        let mut shown = self.summary(&open, users);
        let details = json!({
            "serial": description.serial,
            "owner": description.opened.owner,
            "layers": description.layers,
            "frozen": description.frozen,
            "seals": description.seals,
            "writable": show_writable(&open),
            "recording": open.image.recorder.is_on(),
            "counters": open.image.counters.tally(),
        });
        if let (Value::Object(shown), Value::Object(details)) = (&mut shown, details) {
            shown.extend(details);
        }
        Ok(shown)
    }

    /// Images in the order of their names, from behind one of them on; an answer holds so many.
    pub(crate) fn list(&self, behind: Option<&ImageName>) -> Value {
        let all = self.all();
        let start = behind.map_or(0, |name| all.partition_point(|open| open.image.name() <= name));
        let shown = &all[start..all.len().min(start + MAX_LISTED)];
        let next = shown.last().filter(|_| start + shown.len() < all.len()).map(|open| open.image.name());
        let images: Vec<&Image> = shown.iter().map(|open| open.image.as_ref()).collect();
        let users = self.exporter.users(&images);
        let images: Vec<Value> =
            shown.iter().zip(users).map(|(open, users)| self.summary(open, users)).collect();
        json!({ "images": images, "next": next, "descriptors": count_descriptors(), "cache": self.layers.statistics() })
    }

    fn summary(&self, open: &OpenImage, users: usize) -> Value {
        let image = &open.image;
        let (state, size, reason) = match image.content_nowait() {
            None => ("loading", None, None),
            Some(Ok(content)) => ("ready", Some(content.size()), None),
            Some(Err(unreadable)) => ("unreadable", None, Some(unreadable.0)),
        };
        json!({
            "name": image.name(),
            "path": self.exporter.path(image),
            "use": image.purpose(),
            "is_writable": image.is_writable(),
            "users": users,
            "state": state,
            "reason": reason,
            "size_bytes": size,
        })
    }
}

fn show_writable(open: &OpenImage) -> Value {
    let directory = open.image.description().writable.clone();
    match (directory, open.image.content_nowait()) {
        (Some(directory), Some(Ok(Content::Writable(disk)))) => {
            let top = disk.disk().top();
            let (space, index) = (top.space_usage(), top.index_usage());
            json!({
                "directory": directory,
                "file_bytes": space.file_bytes,
                "live_bytes": space.live_bytes,
                "index_records": index.records,
                "index_runs": index.runs,
            })
        }
        (directory, _) => directory.map_or(Value::Null, |directory| json!({ "directory": directory })),
    }
}

/// Descriptors that this program has open; none when the system does not say.
fn count_descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

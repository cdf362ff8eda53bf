//! What the kernel reports, and what the contract calls it. Pure.

use nix::sys::inotify::AddWatchFlags;
use serde::Serialize;

use crate::filesystem::entry::Entry;

/// Everything that the contract has a name for.
pub(super) const INTERESTING: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE);

/// What is reported about the watched directory itself.
pub(super) const ABOUT_SELF: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum EventType {
    /// Created, or moved in.
    #[serde(rename = "EVENT_TYPE_CREATE")]
    Create,
    /// Content changed.
    #[serde(rename = "EVENT_TYPE_WRITE")]
    Write,
    /// Gone.
    #[serde(rename = "EVENT_TYPE_REMOVE")]
    Remove,
    /// Moved away.
    #[serde(rename = "EVENT_TYPE_RENAME")]
    Rename,
    /// Owner, mode or attributes changed.
    #[serde(rename = "EVENT_TYPE_CHMOD")]
    Chmod,
}

impl EventType {
    /// Whether there is something left to describe.
    pub(super) fn leaves_entry(self) -> bool {
        matches!(self, Self::Create | Self::Write | Self::Chmod)
    }
}

/// One event, in the form of the wire.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FilesystemEvent {
    /// Path below the watched directory.
    pub(super) name: String,
    /// What happened.
    #[serde(rename = "type")]
    pub(super) event_type: EventType,
    /// What is there now, when the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<Entry>,
}

/// The names of what one kernel event says, in the order of the contract.
pub(super) fn types_of(mask: AddWatchFlags) -> impl Iterator<Item = EventType> {
    [
        (AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO), EventType::Create),
        (AddWatchFlags::IN_MOVED_FROM.union(AddWatchFlags::IN_MOVE_SELF), EventType::Rename),
        (AddWatchFlags::IN_ATTRIB, EventType::Chmod),
        (AddWatchFlags::IN_MODIFY, EventType::Write),
        (
            AddWatchFlags::IN_DELETE.union(AddWatchFlags::IN_DELETE_SELF).union(AddWatchFlags::IN_UNMOUNT),
            EventType::Remove,
        ),
    ]
    .into_iter()
    .filter_map(move |(bits, event_type)| mask.intersects(bits).then_some(event_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(mask: AddWatchFlags) -> Vec<EventType> {
        types_of(mask).collect()
    }

    #[test]
    fn several_bits_come_in_the_order_of_the_contract() {
        let order =
            [EventType::Create, EventType::Rename, EventType::Chmod, EventType::Write, EventType::Remove];
        assert_eq!(named(INTERESTING), order);
    }

    #[test]
    fn a_move_is_a_rename_and_a_creation() {
        assert_eq!(named(AddWatchFlags::IN_MOVED_FROM), [EventType::Rename]);
        assert_eq!(named(AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ISDIR), [EventType::Create]);
        assert_eq!(named(AddWatchFlags::IN_IGNORED), []);
    }

    #[test]
    fn the_wire_form_has_an_entry_only_when_there_is_one() {
        let event = FilesystemEvent { name: "a/b".into(), event_type: EventType::Write, entry: None };
        assert_eq!(
            serde_json::to_string(&event).expect("serialises"),
            r#"{"name":"a/b","type":"EVENT_TYPE_WRITE"}"#
        );
    }
}

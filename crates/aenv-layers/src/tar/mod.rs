//! The archive of one member that lets a layer travel as a layer of a registry.

mod find;
mod header;
mod write;

pub use find::find_member;
pub use write::TarWriter;

/// The name of the one member.
const MEMBER_NAME: &[u8] = b"overlaybd.commit";

/// Its name while it is being written.
const UNFINISHED_NAME: &[u8] = b"overlaybd.new";

/// The name of the header that carries the size.
const PAX_NAME: &[u8] = b"overlaybd.pax";

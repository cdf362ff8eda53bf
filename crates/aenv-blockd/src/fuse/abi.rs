//! The bytes of the kernel's FUSE protocol, version 7. Layouts and numbers only; no behaviour.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that we speak; the kernel speaks it with every older minor version too.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version whose messages are described here.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that has every message that we rely on (extended flags of INIT).
pub(crate) const OLDEST_MINOR: u32 = 36;

/// The node of the mount itself.
pub(crate) const ROOT: u64 = 1;

/// Marks a request that the kernel hands out again, because the program that read it died.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// Numbers of the requests that we answer; all others are refused as unknown.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const LSEEK: u32 = 46;
}

/// Numbers of the messages that we send unasked.
pub(crate) mod notice {
    pub(crate) const INVALIDATE_NODE: i32 = 2;
    pub(crate) const INVALIDATE_NAME: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RESEND: i32 = 7;
}

/// Features of INIT, both words as one number.
pub(crate) mod feature {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
}

/// How an opened file behaves.
pub(crate) mod open_flag {
    pub(crate) const DIRECT_IO: u32 = 1;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Fields that SETATTR wants to change.
pub(crate) mod change {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const OWNER: u32 = 1 << 1;
    pub(crate) const GROUP: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

macro_rules! message {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    };
}

message! {
    /// Before every request.
    RequestHeader {
        length: u32, opcode: u32, unique: u64, node: u64, user: u32, group: u32, process: u32,
        extension_words: u16, padding: u16,
    }
}
message! {
    /// Before every answer, and before every message that we send unasked.
    AnswerHeader { length: u32, error: i32, unique: u64 }
}
message! {
    /// What the kernel offers.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
}
message! {
    /// What we accept of it.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_granularity: u32, max_pages: u16, map_alignment: u16, flags2: u32,
        max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
}
message! {
    /// What `stat` shows of a node.
    Attributes {
        inode: u64, size: u64, blocks: u64, accessed: u64, modified: u64, changed: u64,
        accessed_nanoseconds: u32, modified_nanoseconds: u32, changed_nanoseconds: u32,
        mode: u32, links: u32, owner: u32, group: u32, device: u32, block_size: u32, flags: u32,
    }
}
message! {
    /// Answer to LOOKUP.
    EntryOut {
        node: u64, generation: u64, entry_valid: u64, attributes_valid: u64,
        entry_valid_nanoseconds: u32, attributes_valid_nanoseconds: u32, attributes: Attributes,
    }
}
message! {
    /// Answer to GETATTR and SETATTR.
    AttributesOut { valid: u64, valid_nanoseconds: u32, padding: u32, attributes: Attributes }
}
message! {
    /// SETATTR.
    SetattrIn {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, accessed: u64, modified: u64,
        changed: u64, accessed_nanoseconds: u32, modified_nanoseconds: u32, changed_nanoseconds: u32, mode: u32,
        unused4: u32, owner: u32, group: u32, unused5: u32,
    }
}
message! {
    /// OPEN and OPENDIR.
    OpenIn { flags: u32, open_flags: u32 }
}
message! {
    /// Answer to them.
    OpenOut { handle: u64, flags: u32, backing: i32 }
}
message! {
    /// RELEASE and RELEASEDIR.
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 }
}
message! {
    /// READ, READDIR, and the beginning of WRITE.
    TransferIn {
        handle: u64, offset: u64, size: u32, transfer_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
}
message! {
    /// Answer to WRITE.
    WriteOut { size: u32, padding: u32 }
}
message! {
    /// FALLOCATE.
    FallocateIn { handle: u64, offset: u64, length: u64, mode: u32, padding: u32 }
}
message! {
    /// LSEEK.
    LseekIn { handle: u64, offset: u64, whence: u32, padding: u32 }
}
message! {
    /// Answer to LSEEK.
    LseekOut { offset: u64 }
}
message! {
    /// Answer to STATFS.
    StatfsOut {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_length: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
}
message! {
    /// Before each name that READDIR lists.
    DirectoryEntry { inode: u64, offset: u64, name_length: u32, kind: u32 }
}
message! {
    /// Drops what the kernel remembers of a node: attributes always, pages when `offset` is not negative.
    InvalidateNode { node: u64, offset: i64, length: i64 }
}
message! {
    /// Drops a name; it follows with a zero byte.
    InvalidateName { parent: u64, name_length: u32, flags: u32 }
}
message! {
    /// Puts bytes, which follow, into the page cache of a node.
    StoreOut { node: u64, offset: u64, size: u32, padding: u32 }
}
message! {
    /// Argument of the ioctl that makes a file known for passthrough.
    BackingMap { descriptor: i32, flags: u32, padding: u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_messages_have_the_sizes_of_the_kernel() {
        assert_eq!(size_of::<RequestHeader>(), 40);
        assert_eq!(size_of::<AnswerHeader>(), 16);
        assert_eq!(size_of::<InitIn>(), 64);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<Attributes>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttributesOut>(), 104);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<OpenOut>(), 16);
        assert_eq!(size_of::<ReleaseIn>(), 24);
        assert_eq!(size_of::<TransferIn>(), 40);
        assert_eq!(size_of::<FallocateIn>(), 32);
        assert_eq!(size_of::<LseekIn>(), 24);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<DirectoryEntry>(), 24);
    }
}

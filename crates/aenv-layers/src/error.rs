//! What can be wrong with a layer or with the files under it. Every error names the layer; damage names the byte.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Why an operation on a layer failed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The bytes do not form a valid layer, or no longer match their checksum.
    #[error("layer {layer} is damaged at byte {offset}: {damage}")]
    Corrupt {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// Where in the file (of the innermost container) the damage was seen.
        offset: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// The layer is valid, but uses a part of the format that is not read here.
    #[error("layer {layer} uses {feature}, which is not supported")]
    Unsupported {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// The part of the format.
        feature: &'static str,
    },
    /// A number in the layer, or the result of the operation, is above what we are willing to hold.
    #[error("layer {layer}: {quantity} of {value} is above the limit of {limit}")]
    TooLarge {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// What is too large.
        quantity: &'static str,
        /// How large it is.
        value: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The caller asked for bytes outside of the virtual disk.
    #[error("{length} bytes at {offset} are outside of the {size} bytes of layer {layer}")]
    OutOfRange {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// First byte asked for.
        offset: u64,
        /// How many bytes were asked for.
        length: u64,
        /// Size of the virtual disk.
        size: u64,
    },
    /// Offset or length is not a multiple of the sector size.
    #[error("{length} bytes at {offset} of layer {layer} are not whole sectors of 512 bytes")]
    Misaligned {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// First byte asked for.
        offset: u64,
        /// How many bytes were asked for.
        length: u64,
    },
    /// A virtual disk can grow but not shrink.
    #[error("layer {layer} has {size} bytes and cannot shrink to {requested}")]
    Shrinking {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// Its size.
        size: u64,
        /// The size asked for.
        requested: u64,
    },
    /// Runs were handed to a writer that are not in ascending order.
    #[error("sector {sector} was handed to layer {layer} out of order")]
    OutOfOrder {
        /// The name of the layer being written.
        layer: Arc<str>,
        /// The first sector of the late run.
        sector: u64,
    },
    /// The layer no longer takes writes, because it was frozen to be sealed.
    #[error("layer {layer} is frozen")]
    Frozen {
        /// The name that the layer was opened under.
        layer: Arc<str>,
    },
    /// Frozen layers become part of the base in the order in which they were frozen.
    #[error("layer {layer} is not the oldest frozen layer of the disk")]
    OutOfTurn {
        /// The name that the layer was opened under.
        layer: Arc<str>,
    },
    /// An earlier failure left it unknown what is on the disk. Reads go on; nothing more is promised.
    #[error("layer {layer} takes no more writes, because an earlier one may be lost: reopen it")]
    Failed {
        /// The name that the layer was opened under.
        layer: Arc<str>,
    },
    /// The file under the layer failed.
    #[error("cannot {operation} layer {layer} at byte {offset}")]
    Io {
        /// The name that the layer was opened under.
        layer: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Where in the file it was tried.
        offset: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The caller's watcher ended the work.
    #[error("work on layer {layer} was cancelled")]
    Cancelled {
        /// The name of the layer being worked on.
        layer: Arc<str>,
    },
}

impl LayerError {
    pub(crate) fn corrupt(layer: &Arc<str>, offset: u64, damage: Damage) -> Self {
        Self::Corrupt { layer: Arc::clone(layer), offset, damage }
    }

    pub(crate) fn unsupported(layer: &Arc<str>, feature: &'static str) -> Self {
        Self::Unsupported { layer: Arc::clone(layer), feature }
    }

    pub(crate) fn limit(
        layer: &Arc<str>,
        quantity: &'static str,
        value: u64,
        limit: u64,
    ) -> Result<(), LayerError> {
        if value > limit {
            return Err(Self::TooLarge { layer: Arc::clone(layer), quantity, value, limit });
        }
        Ok(())
    }
}

/// What is wrong with the bytes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends before the structure does.
    #[error("the file ends too early")]
    Truncated,
    /// Neither a layer, nor a compressed layer, nor an archive of one.
    #[error("this is not a layer")]
    UnknownFormat,
    /// The magic bytes of a header or trailer are wrong.
    #[error("the magic bytes are wrong")]
    Magic,
    /// A header or trailer gives itself the wrong size.
    #[error("the size of the header is wrong")]
    HeaderSize,
    /// The flags do not fit the place where the block was found.
    #[error("the flags do not belong here")]
    Flags,
    /// An identifier is not a UUID.
    #[error("the identifier is not a UUID")]
    Identifier,
    /// Two files of a pair name different layers.
    #[error("data and index belong to different layers")]
    DifferentLayers,
    /// The size of the virtual disk is not whole sectors.
    #[error("the virtual size is not a multiple of 512")]
    VirtualSize,
    /// The index is not where the trailer says, or does not fit.
    #[error("the index lies outside of the file")]
    IndexBounds,
    /// Entries of a sealed index overlap or are out of order.
    #[error("index entries overlap or are out of order")]
    IndexOrder,
    /// An index entry covers no sector or lies outside of the disk.
    #[error("the index entry covers no valid range")]
    EntryRange,
    /// An index entry points to bytes that are not data.
    #[error("the index entry points outside of the data")]
    EntryTarget,
    /// A checksum does not match.
    #[error("the checksum is wrong")]
    Checksum,
    /// A compressed block does not decompress to its exact length.
    #[error("the compressed block is invalid")]
    CompressedBlock,
    /// The table of block lengths contradicts the header.
    #[error("the table of block lengths is invalid")]
    JumpTable,
    /// The block size is not a power of two between 4 and 64 KiB.
    #[error("the block size is invalid")]
    BlockSize,
    /// A header of the archive is invalid.
    #[error("the archive header is invalid")]
    ArchiveHeader,
    /// The archive holds more or other members than one layer.
    #[error("the archive does not hold exactly one layer")]
    ArchiveMembers,
    /// Bytes that were durable are gone.
    #[error("the data file is shorter than what was written out durably")]
    LostData,
}

/// What was tried on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creating a file.
    Create,
    /// Opening a file.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Waiting until bytes or names are durable.
    Sync,
    /// Changing or asking the length of a file.
    Resize,
    /// Giving back the space of bytes.
    Punch,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "write out",
            Self::Resize => "measure or resize",
            Self::Punch => "give back space of",
            Self::Rename => "rename",
            Self::Remove => "remove",
        })
    }
}

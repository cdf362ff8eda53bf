//! Compressing and decompressing single blocks. Every block stands alone.

use crate::error::Damage;

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 blocks: what layers are pushed with.
    #[default]
    Lz4,
    /// One zstd frame per block.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// The only level that the reference uses.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    pub(super) fn from_number(number: u8) -> Result<Self, &'static str> {
        match number {
            1 => Ok(Self::Lz4),
            #[cfg(feature = "zstd")]
            2 => Ok(Self::Zstd),
            #[cfg(not(feature = "zstd"))]
            2 => Err("zstd compression, for which this program was not built"),
            _ => Err("an unknown compression"),
        }
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Lz4 => 1,
            #[cfg(feature = "zstd")]
            Self::Zstd => 2,
        }
    }

    /// Compresses a block; the result may be larger than the block.
    pub(super) fn compress(self, block: &[u8]) -> Vec<u8> {
        match self {
            Self::Lz4 => lz4_flex::block::compress(block),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::bulk::compress(block, ZSTD_LEVEL)
                .expect("the output buffer is as large as the result can become"),
        }
    }

    /// Decompresses a block that must fill `output` exactly.
    pub(super) fn decompress(self, compressed: &[u8], output: &mut [u8]) -> Result<(), Damage> {
        let length = match self {
            Self::Lz4 => lz4_flex::block::decompress_into(compressed, output).ok(),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::bulk::decompress_to_buffer(compressed, output).ok(),
        };
        if length == Some(output.len()) {
            Ok(())
        } else {
            Err(Damage::CompressedBlock)
        }
    }
}

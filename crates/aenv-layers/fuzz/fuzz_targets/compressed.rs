//! Any bytes are a container, every range of which reads or is an error, or no container.
#![no_main]

use std::sync::Arc;

use aenv_layers::{Limits, Memory, ReadAt, ZfileReader};
use libfuzzer_sys::fuzz_target;

/// Where to read: the first bytes of the input, so that the rest can begin as a container does.
const RANGE_SIZE: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((range, bytes)) = input.split_first_chunk::<RANGE_SIZE>() else { return };
    let offset = u64::from(u16::from_le_bytes([range[0], range[1]]));
    let mut buffer = vec![0; usize::from(u16::from_le_bytes([range[2], range[3]]))];
    let source = Arc::new(Memory::new(bytes.to_vec()));
    let Ok(reader) = ZfileReader::open("fuzz", source, &Limits::default()) else { return };
    let _ = reader.read_exact(offset, &mut buffer);
    let size = reader.length().expect("the size is known");
    let _ = reader.read_at(size.saturating_sub(buffer.len() as u64), &mut buffer);
});

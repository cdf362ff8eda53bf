//! Any bytes are a container, every range of which reads or is an error, or no container.
#![no_main]

use std::sync::Arc;

use aenv_layers::{Limits, Memory, ReadAt, ZfileReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u16, Vec<u8>)| {
    let (offset, length, bytes) = input;
    let source = Arc::new(Memory::new(bytes));
    let Ok(reader) = ZfileReader::open("fuzz", source, &Limits::default()) else { return };
    let mut buffer = vec![0; usize::from(length)];
    let _ = reader.read_exact(u64::from(offset), &mut buffer);
    let size = reader.length().expect("the size is known");
    let _ = reader.read_at(size.saturating_sub(u64::from(length)), &mut buffer);
});

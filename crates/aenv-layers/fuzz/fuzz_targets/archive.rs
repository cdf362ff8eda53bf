//! Any bytes are an archive whose member lies within them, or no archive.
#![no_main]

use std::sync::Arc;

use aenv_layers::{find_member, Memory};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let source = Arc::new(Memory::new(bytes.to_vec()));
    if let Ok(Some((offset, length))) = find_member("fuzz", source) {
        assert!(offset + length <= bytes.len() as u64);
    }
});

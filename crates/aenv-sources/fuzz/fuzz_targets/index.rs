//! Any bytes are an index that would be written the same, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aenv_sources::fuzz::index(bytes));

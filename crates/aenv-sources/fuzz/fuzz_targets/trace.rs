//! Any bytes are a trace that reads back the same, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aenv_sources::fuzz::trace(bytes));

//! Any text is a challenge, a range or an address that is followed, or none of these.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aenv_sources::fuzz::headers(bytes));

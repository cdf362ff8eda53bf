//! Any headers choose bytes inside the file, a known encoding, a user, a time, or are an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| aenv_guest::fuzz::headers(input));

//! Any bytes are a JSON message of a call, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| aenv_guest::fuzz::messages(input));

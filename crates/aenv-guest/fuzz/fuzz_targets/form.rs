//! Any bytes are a multipart form, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| aenv_guest::fuzz::form(input));

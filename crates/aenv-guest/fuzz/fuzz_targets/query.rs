//! Any request target parses, and none opens a file without the token.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| aenv_guest::fuzz::query(input));

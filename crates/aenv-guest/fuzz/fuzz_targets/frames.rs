//! Any bytes are frames of a stream, the same however they are cut, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| aenv_guest::fuzz::frames(input));

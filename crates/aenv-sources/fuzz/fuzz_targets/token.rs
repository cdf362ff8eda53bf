//! Any bytes are a token that fits into a header, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aenv_sources::fuzz::token(bytes));

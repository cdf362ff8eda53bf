//! Any bytes are a file of credentials, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aenv_sources::fuzz::credentials(bytes));

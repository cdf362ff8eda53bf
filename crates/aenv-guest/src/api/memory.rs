//! `GET /memory`: what the host must know before it takes memory away with the balloon. In bytes.

use std::fs;

use hyper::StatusCode;
use serde::Serialize;

use super::meminfo::Meminfo;
use crate::http::{self, Response};

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Memory {
    total: u64,
    /// Used for nothing.
    free: u64,
    /// What programs could still get, without anything being swapped out or killed: the kernel's own estimate.
    available: u64,
    /// Pages of files, which the kernel gives up when asked.
    cached: u64,
}

/// Answers `GET /memory`.
pub(crate) fn get() -> Response {
    http::json(StatusCode::OK, &Memory::of(&Meminfo(fs::read_to_string("/proc/meminfo").unwrap_or_default())))
}

impl Memory {
    fn of(meminfo: &Meminfo) -> Self {
        Self {
            total: meminfo.bytes("MemTotal"),
            free: meminfo.bytes("MemFree"),
            available: meminfo.bytes("MemAvailable"),
            cached: meminfo.bytes("Cached") + meminfo.bytes("Buffers") + meminfo.bytes("SReclaimable"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_kernels_in_bytes() {
        let text = "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\nBuffers: 1 kB\nCached: 2 kB\n";
        let expected = Memory { total: 9 << 10, free: 1 << 10, available: 4 << 10, cached: 3 << 10 };
        assert_eq!(Memory::of(&Meminfo(text.to_owned())), expected);
    }
}

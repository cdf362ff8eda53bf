//! `GET /metrics`: figures of the whole guest, from `/proc` and the root file system.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use serde::Serialize;

use super::meminfo::Meminfo;
use crate::http::{self, Response};
use crate::state::Daemon;

/// The document of the contract.
#[derive(Debug, Serialize)]
struct Metrics {
    ts: u64,
    cpu_count: usize,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

/// Answers `GET /metrics`.
pub(crate) fn get(daemon: &Daemon) -> Response {
    let memory = Memory::of(&Meminfo(fs::read_to_string("/proc/meminfo").unwrap_or_default()));
    let processors = fs::read_to_string("/proc/stat").unwrap_or_default();
    let (disk_total, disk_used) = disk_bytes();
    let metrics = Metrics {
        ts: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs()),
        cpu_count: count_processors(&processors),
        cpu_used_pct: daemon.processor_usage.look(&processors),
        mem_total: memory.total,
        mem_used: memory.used,
        mem_cache: memory.cache,
        mem_total_mib: memory.total >> 20,
        mem_used_mib: memory.used >> 20,
        disk_used,
        disk_total,
    };
    http::json(StatusCode::OK, &metrics)
}

/// Total and used bytes of the root file system. Blocks reserved for root count as used, as `df` has it.
fn disk_bytes() -> (u64, u64) {
    let Ok(figures) = nix::sys::statvfs::statvfs("/") else { return (0, 0) };
    let total = figures.blocks() * figures.fragment_size();
    (total, total.saturating_sub(figures.blocks_free() * figures.fragment_size()))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    total: u64,
    used: u64,
    cache: u64,
}

impl Memory {
    fn of(meminfo: &Meminfo) -> Self {
        let total = meminfo.bytes("MemTotal");
        let cache = meminfo.bytes("Cached") + meminfo.bytes("SReclaimable");
        let unused = meminfo.bytes("MemFree") + meminfo.bytes("Buffers") + cache;
        Self { total, used: total.saturating_sub(unused), cache }
    }
}

fn count_processors(stat: &str) -> usize {
    let is_processor = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(is_processor).count()
}

/// Clock ticks since boot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    total: u64,
    idle: u64,
}

impl Ticks {
    /// User, nice, system, idle, iowait, irq, softirq, steal; guest time is inside user time already.
    fn parse(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|number| number.parse().ok()).collect();
        let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
        Self { total: ticks.iter().sum(), idle }
    }
}

/// The busy share of all processors between two looks; the first look covers the time since boot.
#[derive(Debug, Default)]
pub(crate) struct ProcessorUsage {
    last: Mutex<(Ticks, f64)>,
}

impl ProcessorUsage {
    fn look(&self, stat: &str) -> f64 {
        let now = Ticks::parse(stat);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let total = now.total.saturating_sub(last.0.total);
        let busy = total.saturating_sub(now.idle.saturating_sub(last.0.idle));
        // Two looks within one tick see no time pass: the earlier answer stands.
        if total > 0 {
            *last = (now, (busy as f64 * 10_000.0 / total as f64).round() / 100.0);
        }
        last.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_the_share_between_looks() {
        let usage = ProcessorUsage::default();
        usage.look("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1\n");
        assert_eq!(usage.look("cpu  20 0 20 150 10 0 0 0 5 0\n"), 20.0);
        assert_eq!(usage.look("cpu  20 0 20 150 10 0 0 0 5 0\n"), 20.0);
        assert_eq!(usage.look("garbage"), 20.0);
    }

    #[test]
    fn memory_counts_what_cannot_be_given_back() {
        let meminfo =
            "MemTotal: 1000 kB\nMemFree: 200 kB\nBuffers: 50 kB\nCached: 300 kB\nSReclaimable: 50 kB\n";
        let expected = Memory { total: 1000 << 10, used: 400 << 10, cache: 350 << 10 };
        assert_eq!(Memory::of(&Meminfo(meminfo.to_owned())), expected);
        assert_eq!(Memory::of(&Meminfo("nonsense".to_owned())), Memory::default());
    }

    #[test]
    fn processors_are_counted_without_the_sum() {
        assert_eq!(count_processors("cpu  1\ncpu0 1\ncpu1 1\nintr 5\n"), 2);
    }
}

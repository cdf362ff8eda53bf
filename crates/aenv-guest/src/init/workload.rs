//! The cgroup of everything that clients start: bounded, so that a fork bomb leaves room for the daemon.

use std::fs;
use std::io;

use super::console;

/// Where each process of the daemon gets its cgroup.
pub(super) const CGROUP: &str = "/sys/fs/cgroup/aenv";
const CGROUP_ROOT_CONTROL: &str = "/sys/fs/cgroup/cgroup.subtree_control";

/// Makes the cgroup. A kernel without cgroups or without their limits leaves the guest without, and works.
pub(super) fn prepare() {
    if let Err(error) = make() {
        console::print(&format!("{CGROUP}: {error}"));
    }
}

fn make() -> io::Result<()> {
    fs::create_dir(CGROUP)?;
    // Only here and not below: each further controller makes each process's group slower to come and go.
    fs::write(CGROUP_ROOT_CONTROL, "+pids")?;
    let threads_max = fs::read_to_string("/proc/sys/kernel/threads-max")?;
    let pids_max = fs::read_to_string("/proc/sys/kernel/pid_max")?;
    fs::write(format!("{CGROUP}/pids.max"), limit(&threads_max, &pids_max).to_string())
}

/// Three quarters of what the kernel can have at all.
fn limit(threads_max: &str, pids_max: &str) -> u64 {
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or(u64::MAX);
    number(threads_max).min(number(pids_max)).min(1 << 22) / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_below_both_of_the_kernels() {
        assert_eq!(limit("4000\n", "32768\n"), 3000);
        assert_eq!(limit("400000\n", "32768\n"), 24576);
    }
}

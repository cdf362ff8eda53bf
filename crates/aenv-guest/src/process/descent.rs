//! Ends a process's tree without cgroups: found in the process table by session and descent.

use std::fs;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

/// Passes over the process table while new children keep appearing; stopped parents make no more.
const PASSES_MAX: usize = 16;

/// Kills the tree of `root`. `is_reaped` says that the pid itself no longer means a process of ours.
///
/// Stops what it finds until nothing new appears, then kills it all: a tree that forks as fast as it can is caught too.
pub(super) fn kill_tree(root: u32, is_reaped: bool) {
    let mut caught: Vec<u32> = Vec::new();
    for _ in 0..PASSES_MAX {
        let mut new = find_tree(root, is_reaped, &read_table());
        new.retain(|pid| !caught.contains(pid));
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|pid| send(*pid, Signal::SIGSTOP));
        caught.extend(new);
    }
    caught.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
}

fn send(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may have gone meanwhile, which is what we want.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The part of `/proc/PID/stat` that says who belongs to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kinship {
    pid: u32,
    parent: u32,
    session: u32,
}

fn read_table() -> Vec<Kinship> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// The command's name may hold anything, also parentheses and spaces: the fields begin after the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<Kinship> {
    let text = String::from_utf8_lossy(stat);
    let pid = text.split(' ').next()?.parse().ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(Kinship { pid, parent, session })
}

fn find_tree(root: u32, is_reaped: bool, table: &[Kinship]) -> Vec<u32> {
    let mut found: Vec<u32> = if is_reaped { Vec::new() } else { vec![root] };
    found.extend(table.iter().filter(|one| one.session == root && one.pid != root).map(|one| one.pid));
    let mut position = 0;
    while let Some(parent) = found.get(position).copied() {
        let children = table.iter().filter(|one| one.parent == parent).map(|one| one.pid);
        let new: Vec<u32> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        position += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_hostile_names() {
        let stat = b"42 (a) R 1 (b) S 7 42 40 0 -1 4194560 1 2";
        assert_eq!(parse_stat(stat), Some(Kinship { pid: 42, parent: 7, session: 40 }));
        assert_eq!(parse_stat(b"42 (zombie) Z 7 42 40 0"), None);
        assert_eq!(parse_stat(b"garbage"), None);
    }

    #[test]
    fn tree_is_session_and_descent() {
        let one = |pid, parent, session| Kinship { pid, parent, session };
        let table = [
            one(10, 1, 10),
            one(11, 10, 10),
            one(12, 11, 12),
            one(13, 1, 10),
            one(14, 12, 14),
            one(20, 1, 20),
        ];
        let mut tree = find_tree(10, false, &table);
        tree.sort_unstable();
        assert_eq!(tree, [10, 11, 12, 13, 14]);
        let mut reaped = find_tree(10, true, &table);
        reaped.sort_unstable();
        assert_eq!(reaped, [11, 12, 13, 14]);
    }
}

//! Freezes and thaws everything that clients have started: one switch above all cgroups of processes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What became of a freeze, counted in groups: one for each process that was started, with its descendants.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Groups that were told to stand still.
    requested: usize,
    frozen: usize,
    not_frozen: usize,
    /// Groups that could not be told. The switch is above them all, so there is none.
    failed: usize,
    /// Groups that say nothing of themselves.
    unobservable: usize,
    /// How long telling them took.
    sweep_ms: u64,
    /// How long they took to stand still.
    wait_ms: u64,
}

impl Report {
    /// Whether everybody stands still.
    pub(super) fn is_complete(&self) -> bool {
        self.frozen == self.requested
    }
}

/// Tells all groups to stand still, and waits until they do, but not longer than `wait`.
pub(super) async fn freeze(cgroup: &Path, wait: Duration) -> io::Result<Report> {
    let begin = Instant::now();
    fs::write(cgroup.join("cgroup.freeze"), "1")?;
    let told = Instant::now();
    loop {
        let report = look(cgroup);
        if report.is_complete() || told.elapsed() >= wait {
            let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            return Ok(Report {
                sweep_ms: milliseconds(told - begin),
                wait_ms: milliseconds(told.elapsed()),
                ..report
            });
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Lets all groups go on.
pub(super) fn thaw(cgroup: &Path) -> io::Result<()> {
    fs::write(cgroup.join("cgroup.freeze"), "0")
}

fn look(cgroup: &Path) -> Report {
    let mut report = Report::default();
    // The whole counts as one more: a process may be in none of the groups below.
    let groups = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let directories = groups.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for directory in directories.map(|entry| entry.path()).chain([cgroup.to_owned()]) {
        report.requested += 1;
        match fs::read_to_string(directory.join("cgroup.events")) {
            Ok(events) if events.lines().any(|line| line == "frozen 1") => report.frozen += 1,
            Ok(_) => report.not_frozen += 1,
            Err(_) => report.unobservable += 1,
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_go_on_are_counted() {
        let cgroup = tempfile::tempdir().expect("a directory");
        for (name, events) in [(".", "populated 1\nfrozen 0\n"), ("1-1", "frozen 1\n"), ("1-2", "frozen 0\n")]
        {
            let directory = cgroup.path().join(name);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("cgroup.events"), events).expect("written");
        }
        fs::create_dir(cgroup.path().join("1-3")).expect("made");
        let report = freeze(cgroup.path(), Duration::from_millis(20)).await.expect("a report");
        assert!(!report.is_complete());
        let counts = (report.requested, report.frozen, report.not_frozen, report.unobservable);
        assert_eq!(counts, (4, 1, 2, 1));
        assert_eq!(fs::read_to_string(cgroup.path().join("cgroup.freeze")).expect("written"), "1");
        thaw(cgroup.path()).expect("written");
        assert_eq!(fs::read_to_string(cgroup.path().join("cgroup.freeze")).expect("written"), "0");
    }
}

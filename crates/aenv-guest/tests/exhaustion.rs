//! Clients that take all descriptors: the daemon still answers, ends nothing that is under way, and recovers.

mod support;

use nix::sys::resource::{setrlimit, Resource};
use serde_json::json;
use support::{eventually, Daemon};

const DESCRIPTORS: u64 = 128;

/// A daemon that may open few descriptors.
fn poor_daemon() -> Daemon {
    Daemon::start_with(|command| {
        use std::os::unix::process::CommandExt;
        // SAFETY: one plain system call between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)?));
        }
    })
}

#[test]
fn test_idle_connections_give_way_to_new_ones() {
    let daemon = poor_daemon();
    let reading = json!({"process": {"cmd": "/bin/cat"}, "stdin": true});
    let mut stream = daemon.stream("process.Process/Start", &reading);
    let pid = stream.next_event()["start"]["pid"].clone();
    let crowd: Vec<_> = (0..DESCRIPTORS * 3).map(|_| daemon.connect()).collect();
    assert_eq!(daemon.get("/health").status, 204);
    // What is under way has not been touched.
    let selector = json!({"process": {"pid": pid}});
    assert_eq!(daemon.call("process.Process/CloseStdin", selector).status, 200);
    assert_eq!(stream.finish().end.expect("an end")["status"], "exit status 0");
    drop(crowd);
}

#[test]
fn test_processes_leave_descriptors_for_those_who_end_them() {
    let daemon = poor_daemon();
    let sleeping = json!({"process": {"cmd": "/bin/sleep", "args": ["300"]}, "stdin": true});
    let mut pids = Vec::new();
    let error = loop {
        let mut stream = daemon.stream("process.Process/Start", &sleeping);
        match stream.next_frame().expect("a stream has a frame") {
            // The process stays, its stream goes.
            (0, message) => pids.push(message["event"]["start"]["pid"].clone()),
            (_, end) => break end["error"].clone(),
        }
        assert!(pids.len() < DESCRIPTORS as usize, "there is an end to descriptors");
    };
    assert_eq!(error["code"], "resource_exhausted");
    for _ in 0..3 {
        assert_eq!(daemon.get("/health").status, 204);
        assert_eq!(daemon.get("/files?path=/etc/hostname").status, 200);
    }
    for pid in &pids {
        let killing = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
        assert_eq!(daemon.call("process.Process/SendSignal", killing).status, 200);
    }
    eventually("a process starts again", || {
        let command = json!({"process": {"cmd": "/bin/true"}, "stdin": true});
        daemon.stream("process.Process/Start", &command).finish().error.is_none()
    });
}

//! What a daemon that is killed leaves to the next one: processes, their streams, their ends, the settings.

mod support;

use std::time::{Duration, Instant};

use serde_json::{json, Value};
use support::{base64_of, eventually, Connection, Daemon};

fn start(daemon: &Daemon, message: &Value) -> (Connection, u64) {
    let mut stream = daemon.stream("process.Process/Start", message);
    let pid = stream.next_event()["start"]["pid"].as_u64().expect("the first event is start");
    (stream, pid)
}

fn shell(command: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", command]}})
}

fn connect(daemon: &Daemon, pid: u64) -> Connection {
    let mut stream = daemon.stream("process.Process/Connect", &json!({"process": {"pid": pid}}));
    assert_eq!(stream.next_event()["start"]["pid"], pid);
    stream
}

fn send(daemon: &Daemon, pid: u64, kind: &str, text: &str) {
    let input = json!({"process": {"pid": pid}, "input": {kind: base64_of(text.as_bytes())}});
    assert_eq!(daemon.call("process.Process/SendInput", input).status, 200);
}

fn close_stdin(daemon: &Daemon, pid: u64) {
    assert_eq!(daemon.call("process.Process/CloseStdin", json!({"process": {"pid": pid}})).status, 200);
}

fn listed(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.call("process.Process/List", json!({})).json();
    list["processes"].as_array().expect("a list").clone()
}

#[test]
fn test_the_daemon_is_back_within_a_second_and_no_connection_is_refused() {
    let daemon = Daemon::start_kept();
    for _ in 0..3 {
        let killed = Instant::now();
        daemon.kill_kept();
        assert_eq!(daemon.get("/health").status, 204);
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    }
}

#[test]
fn test_a_process_keeps_its_streams_its_listing_and_its_end() {
    let daemon = Daemon::start_kept();
    let mut message = shell("while read line; do echo out $line; echo err $line >&2; done; exit 7");
    message["tag"] = json!("reader");
    message["process"]["envs"] = json!({"A": "b"});
    let (mut before, pid) = start(&daemon, &message);
    send(&daemon, pid, "stdin", "one\n");
    assert!(before.next_event()["data"].is_object());
    daemon.kill_kept();
    let [process] = listed(&daemon).try_into().expect("one process");
    assert_eq!((&process["pid"], &process["tag"]), (&json!(pid), &json!("reader")));
    assert_eq!(process["config"], message["process"]);
    let mut stream = connect(&daemon, pid);
    send(&daemon, pid, "stdin", "two\n");
    close_stdin(&daemon, pid);
    let transcript = stream.finish();
    assert!(transcript.stdout_text().ends_with("out two\n"), "{}", transcript.stdout_text());
    assert!(transcript.stderr.ends_with(b"err two\n"));
    assert_eq!(transcript.end.expect("an end")["status"], "exit status 7");
    eventually("it is not listed any more", || listed(&daemon).is_empty());
}

#[test]
fn test_a_terminal_survives_with_its_size() {
    let daemon = Daemon::start_kept();
    let message = json!({"process": {"cmd": "/bin/sh", "args": ["-i"], "envs": {"PS1": ""}},
        "pty": {"size": {"cols": 80, "rows": 24}}});
    let (_before, pid) = start(&daemon, &message);
    daemon.kill_kept();
    let mut stream = connect(&daemon, pid);
    let size = json!({"process": {"pid": pid}, "pty": {"size": {"cols": 100, "rows": 30}}});
    assert_eq!(daemon.call("process.Process/Update", size).json(), json!({}));
    send(&daemon, pid, "pty", "stty size; exit 5\n");
    let transcript = stream.finish();
    let text = String::from_utf8_lossy(&transcript.pty).into_owned();
    assert!(text.contains("30 100"), "{text}");
    assert_eq!(transcript.end.expect("an end")["exitCode"], 5);
}

#[test]
fn test_signals_and_time_limits_outlive_the_daemon() {
    let daemon = Daemon::start_kept();
    let (_one, killed) = start(&daemon, &shell("exec sleep 600"));
    let headers = [("Connect-Timeout-Ms", "1500")];
    let body = support::frame(0, shell("sleep 601; true").to_string().as_bytes());
    let mut limited = daemon.stream_with("process.Process/Start", &headers, &[body]);
    let limited = limited.next_event()["start"]["pid"].as_u64().expect("a pid");
    daemon.kill_kept();
    let mut killed_stream = connect(&daemon, killed);
    let mut limited_stream = connect(&daemon, limited);
    let signal = json!({"process": {"pid": killed}, "signal": "SIGNAL_SIGTERM"});
    assert_eq!(daemon.call("process.Process/SendSignal", signal).status, 200);
    assert_eq!(killed_stream.finish().end.expect("an end")["error"], "signal: terminated");
    assert_eq!(limited_stream.finish().end.expect("an end")["error"], "signal: killed");
}

#[test]
fn test_a_process_that_ends_while_there_is_no_daemon_is_remembered() {
    let daemon = Daemon::start_kept();
    let (_stream, pid) = start(&daemon, &shell("read line; echo $line; exit 9"));
    let pid_of_daemon = daemon.kept_pid().expect("a daemon");
    let pid_of_daemon = nix::unistd::Pid::from_raw(pid_of_daemon);
    // A daemon that stands still takes the line, and the process ends behind its back.
    nix::sys::signal::kill(pid_of_daemon, nix::sys::signal::SIGSTOP).expect("stopped");
    let process = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
    nix::sys::signal::kill(process, nix::sys::signal::SIGKILL).expect("killed");
    daemon.kill_kept();
    let mut stream = connect(&daemon, pid);
    assert_eq!(stream.finish().end.expect("an end")["error"], "signal: killed");
}

#[test]
fn test_a_second_death_loses_nothing_either() {
    let daemon = Daemon::start_kept();
    let (_stream, pid) = start(&daemon, &shell("cat; exit 4"));
    for _ in 0..4 {
        daemon.kill_kept();
        assert_eq!(listed(&daemon).len(), 1);
    }
    let mut stream = connect(&daemon, pid);
    send(&daemon, pid, "stdin", "still here");
    close_stdin(&daemon, pid);
    daemon.call("process.Process/List", json!({}));
    let transcript = stream.finish();
    assert_eq!(transcript.stdout_text(), "still here");
    assert_eq!(transcript.end.expect("an end")["exitCode"], 4);
}

#[test]
fn test_a_closed_input_stays_closed() {
    let daemon = Daemon::start_kept();
    let (_stream, pid) = start(&daemon, &shell("cat; exec sleep 600"));
    close_stdin(&daemon, pid);
    daemon.kill_kept();
    let input = json!({"process": {"pid": pid}, "input": {"stdin": base64_of(b"x")}});
    assert_eq!(daemon.call("process.Process/SendInput", input).json()["code"], "internal");
    assert_eq!(listed(&daemon).len(), 1);
}

#[test]
fn test_output_of_a_process_whose_end_was_known_is_still_delivered() {
    let daemon = Daemon::start_kept();
    // The shell ends, and its child holds the stream open.
    let (_before, pid) = start(&daemon, &shell("(sleep 2; echo late) & exit 3"));
    eventually("the shell has ended", || listed(&daemon).is_empty());
    daemon.kill_kept();
    let transcript = connect(&daemon, pid).finish();
    assert_eq!(transcript.stdout_text(), "late\n");
    assert_eq!(transcript.end.expect("an end")["exitCode"], 3);
}

#[test]
fn test_the_token_and_the_environment_outlive_the_daemon() {
    let daemon = Daemon::start_kept();
    let message =
        json!({"accessToken": "secret", "envVars": {"A": "1"}, "timestamp": "2026-01-01T00:00:00.5Z"});
    assert_eq!(daemon.post_json("/init", &message).status, 204);
    daemon.kill_kept();
    assert_eq!(daemon.get("/envs").status, 401);
    let envs = daemon.request("GET", "/envs", &[("X-Access-Token", "secret")], b"").json();
    assert_eq!(envs, json!({"A": "1", "E2B_SANDBOX": "true"}));
}

#[test]
fn test_a_dead_daemon_leaves_no_connection_and_no_descriptor_behind() {
    let daemon = Daemon::start_kept();
    let mut client = daemon.connect();
    client.write(b"GET /health HTTP/1.1\r\nHost: guest\r\n\r\n");
    client.read_head();
    let count = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a table").count();
    daemon.kill_kept();
    assert_eq!(client.read_rest(), b"");
    drop(client);
    assert_eq!(daemon.get("/health").status, 204);
    let first = count(daemon.pid());
    for _ in 0..5 {
        daemon.kill_kept();
        assert_eq!(daemon.get("/health").status, 204);
    }
    eventually("the table has its old size", || count(daemon.pid()) <= first);
}

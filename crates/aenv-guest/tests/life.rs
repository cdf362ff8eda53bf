//! The routes between host and guest: initialisation, token, environment, figures.

mod support;

use serde_json::json;
use support::{frame, Daemon};

fn init_with(daemon: &Daemon, token: &str, message: &serde_json::Value) -> u16 {
    let headers = [("Content-Type", "application/json"), ("X-Access-Token", token)];
    daemon.request("POST", "/init", &headers, message.to_string().as_bytes()).status
}

#[test]
fn test_init_sets_environment_identity_and_defaults() {
    let daemon = Daemon::start();
    let message = json!({
        "envVars": {"A": "1"}, "defaultUser": "root", "defaultWorkdir": "/usr", "timestamp": "2026-01-01T00:00:00Z",
        "sandboxID": "iabc", "templateID": "base", "lifecycleID": "ignored", "volumeMounts": [], "hyperloopIP": "",
    });
    let answer = daemon.post_json("/init", &message);
    assert_eq!((answer.status, answer.header("x-envd-version")), (204, Some("0.6.13")));
    let expected =
        json!({"A": "1", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "iabc", "E2B_TEMPLATE_ID": "base"});
    assert_eq!(daemon.get("/envs").json(), expected);
    let id_file = daemon.directory.path().join("state/.E2B_SANDBOX_ID");
    assert_eq!(std::fs::read_to_string(id_file).expect("an identity file"), "iabc");
    let start = json!({"process": {"cmd": "/bin/sh", "args": ["-c", "pwd; id -un; echo $A$E2B_SANDBOX_ID"]}, "stdin": false});
    assert_eq!(daemon.stream("process.Process/Start", &start).finish().stdout_text(), "/usr\nroot\n1iabc\n");
    assert_eq!(daemon.post_json("/init", &json!({"envVars": {"B": "2"}})).status, 204);
    assert_eq!(daemon.get("/envs").json()["A"], json!(null));
}

#[test]
fn test_an_older_init_is_ignored() {
    let daemon = Daemon::start();
    for (timestamp, value, expected) in [
        ("2026-01-01T00:00:10Z", "new", "new"),
        ("2026-01-01T00:00:09.999Z", "old", "new"),
        ("2026-01-01T00:00:10Z", "same", "same"),
    ] {
        let message = json!({"timestamp": timestamp, "envVars": {"V": value}});
        assert_eq!(daemon.post_json("/init", &message).status, 204);
        assert_eq!(daemon.get("/envs").json()["V"], expected);
    }
}

#[test]
fn test_the_token_guards_everything_and_can_be_replaced() {
    let daemon = Daemon::start();
    assert_eq!(daemon.post_json("/init", &json!({"accessToken": "first"})).status, 204);
    assert_eq!(daemon.get("/health").status, 204);
    for (method, path) in [
        ("GET", "/envs"),
        ("GET", "/metrics"),
        ("POST", "/shutdown"),
        ("GET", "/memory"),
        ("POST", "/freeze"),
        ("POST", "/unfreeze"),
        ("POST", "/fsfreeze"),
        ("POST", "/fsthaw"),
        ("POST", "/files/compose"),
        ("POST", "/init"),
        ("POST", "/process.Process/List"),
        ("POST", "/filesystem.Filesystem/Stat"),
        ("GET", "/nothing"),
    ] {
        let answer = daemon.request(method, path, &[("X-Access-Token", "firsT")], b"");
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (401, Some(401)), "{path}");
    }
    assert_eq!(init_with(&daemon, "first", &json!({"accessToken": "second"})), 204);
    assert_eq!(init_with(&daemon, "first", &json!({})), 401);
    assert_eq!(daemon.request("GET", "/envs", &[("X-Access-Token", "second")], b"").status, 200);
}

#[test]
fn test_init_refuses_what_it_cannot_do_and_changes_nothing() {
    let daemon = Daemon::start();
    let cases = [
        ("volumeMounts", json!([{"nfs_target": "x", "path": "/y"}])),
        ("hyperloopIP", json!("10.0.0.1")),
        ("caBundle", json!("-----BEGIN")),
        ("timestamp", json!("yesterday")),
        ("hostname", json!("a b")),
        ("machineID", json!("xyz")),
        ("entropy", json!(support::base64_of(&[0; 4097]))),
        ("envVars", json!({"A=B": "c"})),
        ("accessToken", json!("line\nbreak")),
    ];
    for (field, value) in cases {
        let mut message = json!({"defaultWorkdir": "/changed", "accessToken": "closed"});
        message[field] = value;
        let answer = daemon.post_json("/init", &message);
        assert_eq!(answer.status, 400, "{field}");
        assert!(answer.text().contains(field), "{field}: {}", answer.text());
    }
    assert_eq!(daemon.post_json("/init", &json!([])).status, 400);
    assert_eq!(daemon.get("/envs").status, 200);
}

#[test]
fn test_entropy_is_taken() {
    let daemon = Daemon::start();
    assert_eq!(daemon.post_json("/init", &json!({"entropy": support::base64_of(b"seed")})).status, 204);
}

#[test]
fn test_an_unknown_default_user_is_an_error_of_the_call() {
    let daemon = Daemon::start();
    assert_eq!(daemon.post_json("/init", &json!({"defaultUser": "ghost"})).status, 204);
    let body = [frame(0, br#"{"process":{"cmd":"true"}}"#)];
    let transcript = daemon.stream_with("process.Process/Start", &[], &body).finish();
    assert_eq!(transcript.error_code(), Some("unauthenticated"));
}

#[test]
fn test_metrics_are_plausible() {
    let daemon = Daemon::start();
    let metrics = daemon.get("/metrics").json();
    let number = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name} is missing"));
    assert!(number("cpu_count") >= 1.0 && (0.0..=100.0).contains(&number("cpu_used_pct")));
    assert!(
        number("mem_used") > 0.0 && number("mem_used") < number("mem_total") && number("mem_cache") > 0.0
    );
    assert_eq!(number("mem_total_mib"), (number("mem_total") / 1048576.0).floor());
    assert!(number("disk_used") > 0.0 && number("disk_used") <= number("disk_total"));
    assert!(number("ts") > 1.7e9);
}

#[test]
fn test_shutdown_without_a_first_process_says_so() {
    let daemon = Daemon::start();
    assert_eq!(daemon.request("POST", "/shutdown", &[], b"").status, 503);
}

#[test]
fn test_the_idle_daemon_is_small() {
    let daemon = Daemon::start();
    assert_eq!(daemon.get("/health").status, 204);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    let kilobytes: u64 =
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(kilobytes < 8 << 10, "{kilobytes} kB resident");
}

#[test]
fn test_memory_is_told_in_bytes() {
    let daemon = Daemon::start();
    let memory = daemon.get("/memory").json();
    let number = |name: &str| memory[name].as_u64().unwrap_or_else(|| panic!("{name} is missing"));
    assert!(number("total") > number("available") && number("available") > 0);
    assert!(number("free") < number("total") && number("cached") < number("total"));
    assert_eq!(daemon.request("POST", "/memory", &[], b"").status, 405);
}

#[test]
fn test_what_is_not_ours_is_not_frozen() {
    let daemon = Daemon::start();
    for path in ["/freeze", "/unfreeze", "/fsfreeze", "/fsthaw"] {
        assert_eq!(daemon.request("POST", path, &[], b"").status, 503, "{path}");
        assert_eq!(daemon.get(path).status, 405, "{path}");
    }
    for path in
        ["/freeze?maxWaitMs=x", "/freeze?maxWaitMs=10001", "/freeze?holdMs=-1", "/fsfreeze?holdMs=300001"]
    {
        assert_eq!(daemon.request("POST", path, &[], b"").status, 400, "{path}");
    }
}

//! Processes through the built daemon: streams, exit codes, signals, input, time limits, subscribers.

mod support;

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use support::{base64_of, eventually, frame, Connection, Daemon};

fn shell(command: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": false})
}

fn start(daemon: &Daemon, message: &Value) -> (Connection, u64) {
    let mut stream = daemon.stream("process.Process/Start", message);
    let pid = stream.next_event()["start"]["pid"].as_u64().expect("the first event is start");
    (stream, pid)
}

fn signal(daemon: &Daemon, pid: u64, name: &str) -> u16 {
    daemon.call("process.Process/SendSignal", json!({"process": {"pid": pid}, "signal": name})).status
}

fn is_alive(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn test_echo_streams_start_output_and_end() {
    let daemon = Daemon::start();
    let mut stream = daemon.stream("process.Process/Start", &shell("echo out; echo err >&2"));
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("application/connect+json")));
    let transcript = stream.finish();
    assert!(transcript.pid.is_some());
    assert_eq!((transcript.stdout.as_slice(), transcript.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(transcript.end, Some(json!({"exitCode": 0, "exited": true, "status": "exit status 0"})));
    assert_eq!(transcript.error, None);
}

#[test]
fn test_exit_code_and_death_by_signal_have_their_texts() {
    let daemon = Daemon::start();
    let end = daemon.stream("process.Process/Start", &shell("exit 3")).finish().end.expect("an end");
    assert_eq!(
        end,
        json!({"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"})
    );
    let end = daemon.stream("process.Process/Start", &shell("kill -TERM $$")).finish().end.expect("an end");
    let text = "signal: terminated";
    assert_eq!(end, json!({"exitCode": -1, "exited": false, "status": text, "error": text}));
    let end = daemon.stream("process.Process/Start", &shell("kill -40 $$")).finish().end.expect("an end");
    assert_eq!(end["status"], "signal: signal 40");
}

#[test]
fn test_signals_reach_the_process_and_strangers_are_not_found() {
    let daemon = Daemon::start();
    let (mut stream, pid) = start(&daemon, &shell("exec sleep 600"));
    assert_eq!(signal(&daemon, pid, "SIGNAL_SIGHUP"), 501);
    assert_eq!(signal(&daemon, pid, "SIGNAL_SIGKILL"), 200);
    assert_eq!(stream.finish().end.expect("an end")["error"], "signal: killed");
    assert_eq!(signal(&daemon, pid, "SIGNAL_SIGKILL"), 404);
    let stranger = daemon.call("process.Process/SendSignal", json!({"process": {"pid": 1}, "signal": 9}));
    assert_eq!(stranger.status, 404);
    assert_eq!(stranger.json(), json!({"code": "not_found", "message": "process with pid 1 not found"}));
}

#[test]
fn test_stdin_is_delivered_in_order_and_closed() {
    let daemon = Daemon::start();
    let (mut stream, pid) = start(&daemon, &json!({"process": {"cmd": "cat"}, "stdin": true}));
    for word in ["one ", "two ", "three"] {
        let input = json!({"process": {"pid": pid}, "input": {"stdin": base64_of(word.as_bytes())}});
        assert_eq!(daemon.call("process.Process/SendInput", input).status, 200);
    }
    let pty =
        daemon.call("process.Process/SendInput", json!({"process": {"pid": pid}, "input": {"pty": "YQ=="}}));
    assert_eq!(pty.json()["code"], "internal");
    let nothing = daemon.call("process.Process/SendInput", json!({"process": {"pid": pid}, "input": {}}));
    assert_eq!(nothing.json()["code"], "unimplemented");
    let selector = json!({"process": {"pid": pid}});
    assert_eq!(daemon.call("process.Process/CloseStdin", selector.clone()).json(), json!({}));
    let transcript = stream.finish();
    assert_eq!(transcript.stdout_text(), "one two three");
    assert_eq!(daemon.call("process.Process/CloseStdin", selector).status, 404);
}

#[test]
fn test_input_stream_feeds_a_process() {
    let daemon = Daemon::start();
    let (mut output, pid) = start(&daemon, &json!({"process": {"cmd": "cat"}, "stdin": true, "tag": "feed"}));
    let words = ["a", "b", "c"].map(|word| json!({"data": {"input": {"stdin": base64_of(word.as_bytes())}}}));
    let mut messages = vec![json!({"start": {"process": {"tag": "feed"}}}), json!({"keepalive": {}})];
    messages.extend(words);
    let frames: Vec<Vec<u8>> =
        messages.iter().map(|message| frame(0, message.to_string().as_bytes())).collect();
    let mut input = daemon.stream_with("process.Process/StreamInput", &[], &frames);
    assert_eq!(input.next_frame(), Some((0, json!({}))));
    assert_eq!(input.next_frame(), Some((2, json!({}))));
    daemon.call("process.Process/CloseStdin", json!({"process": {"pid": pid}}));
    assert_eq!(output.finish().stdout_text(), "abc");
}

#[test]
fn test_absent_stdin_is_a_pipe_and_false_is_empty() {
    let daemon = Daemon::start();
    let empty = daemon.stream("process.Process/Start", &json!({"process": {"cmd": "cat"}, "stdin": false}));
    assert_eq!({ empty }.finish().end.expect("an end")["exitCode"], 0);
    let (mut stream, pid) = start(&daemon, &json!({"process": {"cmd": "cat"}}));
    let input = json!({"process": {"pid": pid}, "input": {"stdin": "aGk"}});
    assert_eq!(daemon.call("process.Process/SendInput", input).status, 200);
    assert_eq!(stream.next_event()["data"]["stdout"], "aGk=");
}

#[test]
fn test_time_limit_kills_the_whole_tree_and_keeps_output() {
    let daemon = Daemon::start();
    let command = "echo before; (setsid sleep 601 & sleep 602 & wait) & sleep 603";
    let body = [frame(0, shell(command).to_string().as_bytes())];
    let began = Instant::now();
    let mut stream = daemon.stream_with("process.Process/Start", &[("Connect-Timeout-Ms", "700")], &body);
    let transcript = stream.finish();
    assert!(began.elapsed() >= Duration::from_millis(700) && began.elapsed() < Duration::from_secs(5));
    assert_eq!(transcript.stdout_text(), "before\n");
    assert_eq!((transcript.error_code(), &transcript.end), (Some("deadline_exceeded"), &None));
    let pid = transcript.pid.expect("a pid");
    eventually("the tree is gone", || !is_alive(pid) && sleepers(&["601", "602", "603"]) == 0);
}

/// How many processes sleep for one of these numbers of seconds.
fn sleepers(seconds: &[&str]) -> usize {
    let entries = std::fs::read_dir("/proc").expect("a process table").flatten();
    let commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let is_wanted =
        |command: &Vec<u8>| seconds.iter().any(|number| *command == format!("sleep\0{number}\0").as_bytes());
    commands.filter(is_wanted).count()
}

#[test]
fn test_end_waits_for_children_that_hold_the_output() {
    let daemon = Daemon::start();
    let transcript =
        daemon.stream("process.Process/Start", &shell("(sleep 0.3; echo late) & echo early")).finish();
    assert_eq!(transcript.stdout_text(), "early\nlate\n");
    assert_eq!(transcript.end.expect("an end")["exitCode"], 0);
}

#[test]
fn test_connect_sees_later_output_and_remembers_the_end() {
    let daemon = Daemon::start();
    let (mut first, pid) = start(&daemon, &json!({"process": {"cmd": "cat"}, "stdin": true}));
    let selector = json!({"process": {"pid": pid}});
    let mut others: Vec<Connection> =
        (0..2).map(|_| daemon.stream("process.Process/Connect", &selector)).collect();
    for other in &mut others {
        assert_eq!(other.next_event(), json!({"start": {"pid": pid}}));
    }
    daemon.call("process.Process/SendInput", json!({"process": {"pid": pid}, "input": {"stdin": "aGk="}}));
    daemon.call("process.Process/CloseStdin", selector.clone());
    for stream in others.iter_mut().chain([&mut first]) {
        let transcript = stream.finish();
        assert_eq!(transcript.stdout_text(), "hi");
        assert_eq!(transcript.end.expect("an end")["exitCode"], 0);
    }
    let late = daemon.stream("process.Process/Connect", &selector).finish();
    assert_eq!((late.pid, late.end.expect("an end")["exitCode"].clone()), (Some(pid), json!(0)));
    let missing = daemon.stream("process.Process/Connect", &json!({"process": {"pid": 4_000_000}})).finish();
    assert_eq!(missing.error.expect("an error")["message"], "process with pid 4000000 not found");
}

#[test]
fn test_list_shows_what_runs_as_it_was_asked_for() {
    let daemon = Daemon::start();
    let config = json!({"cmd": "sleep", "args": ["600"], "envs": {"A": "b=c\nü"}, "cwd": "/tmp"});
    let (_stream, pid) = start(&daemon, &json!({"process": config, "tag": "nap", "stdin": false}));
    let list = daemon.call("process.Process/List", json!({})).json();
    assert_eq!(list, json!({"processes": [{"config": config, "pid": pid, "tag": "nap"}]}));
    let by_tag = json!({"process": {"tag": "nap"}, "signal": "SIGNAL_SIGTERM"});
    assert_eq!(daemon.call("process.Process/SendSignal", by_tag).status, 200);
    eventually("the list is empty", || {
        daemon.call("process.Process/List", json!({})).json() == json!({"processes": []})
    });
}

#[test]
fn test_a_client_that_leaves_does_not_end_the_process() {
    let daemon = Daemon::start();
    let (stream, pid) = start(&daemon, &shell("while :; do echo tick; sleep 0.01; done"));
    drop(stream);
    let mut again = daemon.stream("process.Process/Connect", &json!({"process": {"pid": pid}}));
    again.next_event();
    let output = again.next_event()["data"]["stdout"].as_str().map(str::to_owned);
    // One tick or several: how many a read finds depends on how busy the machine is.
    assert!(output.is_some_and(|text| text.starts_with("dGlja")), "the next output is a tick");
    assert_eq!(signal(&daemon, pid, "SIGNAL_SIGKILL"), 200);
}

#[test]
fn test_environment_is_only_what_the_contract_names() {
    let daemon = Daemon::start();
    let message = json!({"process": {"cmd": "env", "envs": {"HOME": "/elsewhere", "X": "1"}, "cwd": "/"}, "stdin": false});
    let text = daemon.stream("process.Process/Start", &message).finish().stdout_text();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("PATH=")).collect();
    lines.sort_unstable();
    let user = if std::fs::read_to_string("/etc/passwd").is_ok_and(|text| text.contains("\nuser:")) {
        "user"
    } else {
        "root"
    };
    let expected =
        ["E2B_SANDBOX=true", "HOME=/elsewhere", &format!("LOGNAME={user}"), &format!("USER={user}"), "X=1"];
    assert_eq!(lines, expected);
    assert!(text.contains("PATH="));
}

#[test]
fn test_users_are_chosen_by_name_or_number() {
    let daemon = Daemon::start();
    let body = [frame(0, shell("id -u; id -g; umask; cat /proc/self/oom_score_adj").to_string().as_bytes())];
    let as_user = |name: &str| {
        let authorization = format!("Basic {}", base64_of(format!("{name}:").as_bytes()));
        daemon.stream_with("process.Process/Start", &[("Authorization", &authorization)], &body).finish()
    };
    assert_eq!(as_user("daemon").stdout_text(), "1\n1\n0022\n100\n");
    assert_eq!(as_user("12345").stdout_text(), "12345\n12345\n0022\n100\n");
    let unknown = as_user("ghost");
    assert_eq!(
        unknown.error,
        Some(json!({"code": "unauthenticated", "message": "invalid username: 'ghost'"}))
    );
}

#[test]
fn test_output_can_be_reopened_by_another_user() {
    let daemon = Daemon::start();
    let body = [frame(0, shell("echo out > /dev/stdout; echo err > /dev/stderr").to_string().as_bytes())];
    let authorization = format!("Basic {}", base64_of(b"daemon:"));
    let transcript =
        daemon.stream_with("process.Process/Start", &[("Authorization", &authorization)], &body).finish();
    assert_eq!((transcript.stdout_text().as_str(), transcript.stderr.as_slice()), ("out\n", &b"err\n"[..]));
}

#[test]
fn test_impossible_starts_say_why() {
    let daemon = Daemon::start();
    let start = |config: Value| {
        let error = daemon
            .stream("process.Process/Start", &json!({"process": config}))
            .finish()
            .error
            .expect("an error");
        (
            error["code"].as_str().expect("a code").to_owned(),
            error["message"].as_str().expect("a text").to_owned(),
        )
    };
    let invalid = |message: &str| ("invalid_argument".to_owned(), message.to_owned());
    assert_eq!(
        start(json!({"cmd": "true", "cwd": "/not/there"})),
        invalid("cwd '/not/there' does not exist")
    );
    assert_eq!(
        start(json!({"cmd": "true", "cwd": "/etc/passwd"})),
        invalid("cwd '/etc/passwd' is not a directory")
    );
    assert_eq!(
        start(json!({"cmd": "/not/there"})),
        invalid("could not start '/not/there': no such file or directory")
    );
    assert_eq!(
        start(json!({"cmd": "/etc/passwd"})),
        invalid("could not start '/etc/passwd': permission denied")
    );
    assert_eq!(start(json!({})), invalid("process.cmd must not be empty"));
    assert_eq!(start(json!({"cmd": "tr\0ue"})).0, "invalid_argument");
    assert_eq!(start(json!({"cmd": "true", "envs": {"A=B": "c"}})).0, "invalid_argument");
}

#[test]
fn test_descriptors_and_signals_start_clean() {
    use nix::sys::signal::{SigSet, Signal};
    use std::os::unix::process::CommandExt;
    let blocked: SigSet = [Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGUSR1].into_iter().collect();
    // SAFETY: one system call on the child's own mask.
    let daemon = Daemon::start_with(|command| unsafe {
        command.pre_exec(move || blocked.thread_block().map_err(Into::into));
    });
    let (_other, _) = start(&daemon, &shell("exec sleep 600"));
    let command = "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2; ulimit -Sn";
    let text = daemon.stream("process.Process/Start", &shell(command)).finish().stdout_text();
    // `ls` itself opens one more.
    assert_eq!(text, "4\n0000000000000000\n0000000000000000\n1024\n");
}

#[test]
fn test_a_stalled_reader_stops_neither_other_readers_nor_the_daemon() {
    let daemon = Daemon::start();
    let (stalled, pid) = start(&daemon, &json!({"process": {"cmd": "cat"}, "stdin": true}));
    let mut lively = daemon.stream("process.Process/Connect", &json!({"process": {"pid": pid}}));
    let reading = std::thread::spawn(move || lively.finish().stdout.len());
    let piece = base64_of(&vec![b'x'; 512 << 10]);
    let megabytes = 32;
    for _ in 0..megabytes * 2 {
        let input = json!({"process": {"pid": pid}, "input": {"stdin": piece}});
        assert_eq!(daemon.call("process.Process/SendInput", input).status, 200);
    }
    assert_eq!(daemon.get("/health").status, 204);
    daemon.call("process.Process/CloseStdin", json!({"process": {"pid": pid}}));
    assert_eq!(reading.join().expect("the lively reader ends"), megabytes << 20);
    let transcript = { stalled }.finish();
    assert_eq!(transcript.error_code(), Some("resource_exhausted"));
}

#[test]
fn test_a_slow_single_reader_gets_everything() {
    let daemon = Daemon::start();
    let (mut stream, _) = start(&daemon, &shell("head -c 33554432 /dev/zero"));
    std::thread::sleep(Duration::from_millis(300));
    let resident = std::fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).expect("figures");
    let pages: usize = resident.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
    assert!(pages * 4096 < 24 << 20, "the daemon holds {pages} pages for a reader that does not read");
    let transcript = stream.finish();
    assert_eq!((transcript.stdout.len(), transcript.stdout.iter().all(|byte| *byte == 0)), (32 << 20, true));
}

#[test]
fn test_silence_is_broken_by_keepalives() {
    let daemon = Daemon::start();
    let body = [frame(0, shell("sleep 2.5").to_string().as_bytes())];
    let transcript =
        daemon.stream_with("process.Process/Start", &[("Keepalive-Ping-Interval", "1")], &body).finish();
    assert_eq!(transcript.keepalives, 2);
}

#[test]
fn test_many_processes_at_once_all_answer() {
    let daemon = Daemon::start();
    let mut streams: Vec<(usize, Connection)> = (0..200)
        .map(|number| {
            (
                number,
                daemon
                    .stream("process.Process/Start", &shell(&format!("echo {number}; exit {}", number % 7))),
            )
        })
        .collect();
    for (number, stream) in &mut streams {
        let transcript = stream.finish();
        assert_eq!(transcript.stdout_text(), format!("{number}\n"));
        assert_eq!(transcript.end.expect("an end")["exitCode"], *number % 7);
    }
}

#[test]
fn test_a_blocked_input_ends_with_its_time_limit() {
    let daemon = Daemon::start();
    let (_stream, pid) =
        start(&daemon, &json!({"process": {"cmd": "sleep", "args": ["600"]}, "stdin": true}));
    let message =
        json!({"process": {"pid": pid}, "input": {"stdin": base64_of(&vec![0; 256 << 10])}}).to_string();
    let headers = [("Content-Type", "application/json"), ("Connect-Timeout-Ms", "200")];
    let answer = daemon.request("POST", "/process.Process/SendInput", &headers, message.as_bytes());
    assert_eq!((answer.status, answer.json()["code"].as_str()), (504, Some("deadline_exceeded")));
    assert_eq!(signal(&daemon, pid, "SIGNAL_SIGKILL"), 200);
}

#[test]
fn test_processes_outlive_a_killed_daemon() {
    use nix::sys::signal::{kill, SIGKILL};
    use nix::unistd::Pid;
    let as_pid = |number: u64| Pid::from_raw(i32::try_from(number).expect("a pid"));
    let daemon = Daemon::start();
    let (mut stream, pid) = start(&daemon, &shell("exec sleep 600"));
    kill(as_pid(daemon.pid().into()), SIGKILL).expect("the daemon is ours to kill");
    // The connection breaks when the daemon has gone.
    let _ = stream.stream.read_to_end(&mut Vec::new());
    assert!(is_alive(pid));
    kill(as_pid(pid), SIGKILL).expect("the orphan is ours to end");
}

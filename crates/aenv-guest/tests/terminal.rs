//! Terminals through the built daemon: size, resize, job control, raw bytes.

mod support;

use serde_json::{json, Value};
use support::{base64_of, Connection, Daemon};

struct Terminal<'a> {
    daemon: &'a Daemon,
    stream: Connection,
    pid: u64,
    seen: String,
}

impl<'a> Terminal<'a> {
    fn open(daemon: &'a Daemon, cmd: &str, args: &[&str]) -> Self {
        let process = json!({"cmd": cmd, "args": args, "envs": {"PS1": "", "TERM": "dumb"}, "cwd": "/"});
        let message = json!({"process": process, "pty": {"size": {"cols": 80, "rows": 24}}});
        let mut stream = daemon.stream("process.Process/Start", &message);
        let pid = stream.next_event()["start"]["pid"].as_u64().expect("a pid");
        Self { daemon, stream, pid, seen: String::new() }
    }

    fn type_text(&self, text: &str) {
        let input = json!({"process": {"pid": self.pid}, "input": {"pty": base64_of(text.as_bytes())}});
        assert_eq!(self.daemon.call("process.Process/SendInput", input).status, 200);
    }

    /// Reads until the text has appeared.
    fn expect(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let event = self.stream.next_event();
            let bytes = event["data"]["pty"]
                .as_str()
                .unwrap_or_else(|| panic!("{event} before {text:?} in {}", self.seen));
            self.seen += &String::from_utf8_lossy(&decode(bytes));
        }
        self.seen.clear();
    }

    fn selector(&self) -> Value {
        json!({"process": {"pid": self.pid}})
    }
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

#[test]
fn test_size_is_set_and_changed() {
    let daemon = Daemon::start();
    let mut terminal = Terminal::open(&daemon, "/bin/sh", &["-i"]);
    terminal.type_text("stty size\n");
    terminal.expect("24 80");
    let size = json!({"process": {"pid": terminal.pid}, "pty": {"size": {"cols": 100, "rows": 30}}});
    assert_eq!(daemon.call("process.Process/Update", size).json(), json!({}));
    terminal.type_text("stty size\n");
    terminal.expect("30 100");
    let huge = json!({"process": {"pid": terminal.pid}, "pty": {"size": {"cols": 70000, "rows": 1}}});
    assert_eq!(daemon.call("process.Process/Update", huge).json()["code"], "invalid_argument");
    terminal.type_text("exit 4\n");
    assert_eq!(terminal.stream.finish().end.expect("an end")["exitCode"], 4);
}

#[test]
fn test_control_c_interrupts_the_foreground_job_only() {
    let daemon = Daemon::start();
    let mut terminal = Terminal::open(&daemon, "/bin/sh", &["-i"]);
    terminal.type_text("sh -c 'echo ready$((1+1)); exec sleep 600'\n");
    terminal.expect("ready2");
    terminal.type_text("\x03");
    terminal.type_text("echo status=$?\n");
    terminal.expect("status=130");
    terminal.type_text("exit 0\n");
    assert_eq!(terminal.stream.finish().end.expect("an end")["exitCode"], 0);
}

#[test]
fn test_terminal_input_cannot_be_closed_and_kill_ends_it() {
    let daemon = Daemon::start();
    let mut terminal = Terminal::open(&daemon, "/bin/sh", &["-i"]);
    let refused = daemon.call("process.Process/CloseStdin", terminal.selector());
    assert_eq!(refused.json()["code"], "unknown");
    let stdin = json!({"process": {"pid": terminal.pid}, "input": {"stdin": "YQ=="}});
    assert_eq!(daemon.call("process.Process/SendInput", stdin).json()["code"], "internal");
    let kill = json!({"process": {"pid": terminal.pid}, "signal": "SIGNAL_SIGKILL"});
    assert_eq!(daemon.call("process.Process/SendSignal", kill).status, 200);
    assert_eq!(terminal.stream.finish().end.expect("an end")["error"], "signal: killed");
}

#[test]
fn test_all_bytes_pass_unchanged() {
    let daemon = Daemon::start();
    let command = "stty raw -echo; printf 'go'; head -c 256 | od -An -v -tu1 | tr -s ' \\n' ' '";
    let mut terminal = Terminal::open(&daemon, "/bin/sh", &["-c", command]);
    terminal.expect("go");
    let all: Vec<u8> = (0..=255).collect();
    let input = json!({"process": {"pid": terminal.pid}, "input": {"pty": base64_of(&all)}});
    assert_eq!(daemon.call("process.Process/SendInput", input).status, 200);
    let expected = all.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let transcript = terminal.stream.finish();
    assert_eq!(String::from_utf8_lossy(&transcript.pty).trim(), expected);
}

#[test]
fn test_resizing_a_process_without_terminal_is_an_error() {
    let daemon = Daemon::start();
    let message = json!({"process": {"cmd": "sleep", "args": ["600"]}, "stdin": false});
    let mut stream = daemon.stream("process.Process/Start", &message);
    let pid = stream.next_event()["start"]["pid"].clone();
    let update =
        |pty: Value| daemon.call("process.Process/Update", json!({"process": {"pid": pid}, "pty": pty}));
    assert_eq!(update(json!({"size": {"cols": 1, "rows": 1}})).json()["code"], "internal");
    assert_eq!(update(Value::Null).json(), json!({}));
    daemon.call("process.Process/SendSignal", json!({"process": {"pid": pid}, "signal": 9}));
}

#[test]
fn test_a_job_in_the_background_keeps_no_terminal_open() {
    let daemon = Daemon::start();
    let mut terminal = Terminal::open(&daemon, "/bin/sh", &["-i"]);
    terminal.type_text("sleep 45 & echo job=$!\n");
    terminal.expect("job=");
    terminal.type_text("echo last words; exit 4\n");
    let transcript = terminal.stream.finish();
    assert!(String::from_utf8_lossy(&transcript.pty).contains("last words\r\n"));
    assert_eq!(transcript.end.expect("an end")["exitCode"], 4);
}

//! Starts the built daemon on a loopback port and speaks HTTP and Connect to it over plain sockets.
//! Deliberately without an HTTP library: tests see the bytes as they are.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// Says that a test proves nothing here. In CI, which has all that tests need, that is a failure.
pub(crate) fn cannot_test(missing: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must have what this test needs: {missing}");
    eprintln!("skipped: needs {missing}");
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    _stdout: BufReader<ChildStdout>,
    pub(crate) directory: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| ())
    }

    /// Starts it after `prepare` has changed the command.
    pub(crate) fn start_with(prepare: impl FnOnce(&mut Command)) -> Self {
        Self::start_role("daemon", prepare)
    }

    /// Starts a keeper, which starts the daemon, as the first process of a guest does.
    pub(crate) fn start_kept() -> Self {
        Self::start_role("keep", |_| ())
    }

    fn start_role(role: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_aenv-guest"));
        prepare(&mut command);
        let mut child = command
            .args([role, "--listen", "127.0.0.1", "--port", "0", "--state-directory"])
            .arg(directory.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the daemon says where it listens");
        let address = line.trim().strip_prefix("aenv-guest: ready on ").and_then(|text| text.parse().ok());
        Self { child, address: address.expect("a socket address"), _stdout: stdout, directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request with a body and reads the whole answer.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut connection = self.send(method, path, headers, body);
        connection.read_head();
        let body = connection.read_to_end();
        Answer { status: connection.status, headers: connection.headers, body }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub(crate) fn post_json(&self, path: &str, message: &Value) -> Answer {
        let body = message.to_string();
        self.request("POST", path, &[("Content-Type", "application/json")], body.as_bytes())
    }

    /// A unary Connect call.
    pub(crate) fn call(&self, method: &str, message: Value) -> Answer {
        self.post_json(&format!("/{method}"), &message)
    }

    /// Opens a server stream and leaves it open.
    pub(crate) fn stream(&self, method: &str, message: &Value) -> Connection {
        self.stream_with(method, &[], &[frame(0, message.to_string().as_bytes())])
    }

    pub(crate) fn stream_with(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        frames: &[Vec<u8>],
    ) -> Connection {
        let mut all = vec![("Content-Type", "application/connect+json"), ("Connect-Protocol-Version", "1")];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        all.extend_from_slice(headers);
        let mut connection = self.send("POST", &format!("/{method}"), &all, &frames.concat());
        connection.read_head();
        connection
    }

    /// Writes a request and returns before anything of the answer is read.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Connection {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        let mut connection = self.connect();
        connection.write(head.as_bytes());
        connection.write(body);
        connection
    }

    /// A bare connection.
    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the daemon accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Connection { stream, reader, status: 0, headers: Vec::new(), remaining: Remaining::UntilClose }
    }
}

impl Daemon {
    /// The daemon of a keeper, when there is one at the moment.
    pub(crate) fn kept_pid(&self) -> Option<i32> {
        let is_daemon = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "aenv-guest\n")
        };
        children(self.child.id()).into_iter().find(is_daemon)
    }

    /// Kills the daemon of a keeper and waits until it has gone.
    pub(crate) fn kill_kept(&self) {
        let pid = self.kept_pid().expect("a daemon runs");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).expect("killed");
        eventually("the daemon goes", || !std::fs::exists(format!("/proc/{pid}")).expect("a proc"));
    }
}

/// What a process has started and not yet reaped.
fn children(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Processes outlive a daemon, but not a test.
        let own = children(self.pid());
        let kept = own.iter().flat_map(|pid| children(pid.unsigned_abs()));
        let all: Vec<i32> = own.iter().copied().chain(kept).collect();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in all {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
        }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

fn find_header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

enum Remaining {
    Exactly(usize),
    Chunked { left: usize, ended: bool },
    UntilClose,
}

/// One exchange in progress.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    remaining: Remaining,
}

impl Connection {
    /// Writes bytes; a daemon that has already answered and closed is not an error here.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn write_chunk(&mut self, bytes: &[u8]) {
        self.write(format!("{:x}\r\n", bytes.len()).as_bytes());
        self.write(bytes);
        self.write(b"\r\n");
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    pub(crate) fn read_head(&mut self) {
        let status_line = self.read_line();
        self.status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        loop {
            let line = self.read_line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').expect("a header");
            self.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        self.remaining = if self.header("transfer-encoding") == Some("chunked") {
            Remaining::Chunked { left: 0, ended: false }
        } else if self.status == 204 || self.status == 304 {
            Remaining::Exactly(0)
        } else {
            match self.header("content-length") {
                Some(length) => Remaining::Exactly(length.parse().expect("a length")),
                None => Remaining::UntilClose,
            }
        };
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Up to `buffer.len()` bytes of the body; 0 at its end.
    pub(crate) fn read_body(&mut self, buffer: &mut [u8]) -> usize {
        if let Remaining::Chunked { left: 0, ended: false } = self.remaining {
            let size = usize::from_str_radix(&self.read_line(), 16).expect("a chunk size");
            if size == 0 {
                self.read_line();
            }
            self.remaining = Remaining::Chunked { left: size, ended: size == 0 };
        }
        let limit = match self.remaining {
            Remaining::Exactly(left) | Remaining::Chunked { left, .. } => left.min(buffer.len()),
            Remaining::UntilClose => buffer.len(),
        };
        if limit == 0 {
            // A read of nothing would wait for something all the same.
            return 0;
        }
        let count = self.reader.read(&mut buffer[..limit]).expect("body bytes");
        assert!(count > 0 || matches!(self.remaining, Remaining::UntilClose), "body was cut off");
        match &mut self.remaining {
            Remaining::Exactly(left) => *left -= count,
            Remaining::Chunked { left, .. } => {
                *left -= count;
                if *left == 0 && count > 0 {
                    self.read_line();
                }
            }
            Remaining::UntilClose => {}
        }
        count
    }

    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.read_body(&mut buffer) {
                0 => return body,
                count => body.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// What comes until the other side closes, however it does.
    pub(crate) fn read_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
        rest
    }

    fn read_exactly(&mut self, buffer: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_body(&mut buffer[filled..]) {
                0 => return false,
                count => filled += count,
            }
        }
        true
    }

    /// The next frame of a Connect stream: flags and JSON.
    pub(crate) fn next_frame(&mut self) -> Option<(u8, Value)> {
        let mut head = [0; 5];
        if !self.read_exactly(&mut head) {
            return None;
        }
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes"));
        let mut payload = vec![0; length as usize];
        assert!(self.read_exactly(&mut payload), "frame was cut off");
        Some((head[0], serde_json::from_slice(&payload).expect("JSON in a frame")))
    }

    /// The next message's `event`; panics at the end of the stream.
    pub(crate) fn next_event(&mut self) -> Value {
        match self.next_frame() {
            Some((0, mut message)) => message["event"].take(),
            other => panic!("expected an event, got {other:?}"),
        }
    }

    /// Reads everything up to and with the end frame.
    pub(crate) fn finish(&mut self) -> Transcript {
        let mut transcript = Transcript::default();
        loop {
            match self.next_frame().expect("a stream ends with an end frame") {
                (0, message) => transcript.add(&message["event"]),
                (2, end) => {
                    assert!(self.next_frame().is_none(), "nothing follows the end frame");
                    transcript.error = end.get("error").cloned();
                    return transcript;
                }
                (flags, _) => panic!("unexpected flags {flags}"),
            }
        }
    }
}

/// What a stream of process events said.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) pid: Option<u64>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) end: Option<Value>,
    pub(crate) keepalives: usize,
    pub(crate) error: Option<Value>,
}

impl Transcript {
    fn add(&mut self, event: &Value) {
        assert!(self.end.is_none(), "no event follows the end event");
        if let Some(start) = event.get("start") {
            self.pid = start["pid"].as_u64();
        } else if let Some(output) = event.get("data") {
            let targets =
                [("stdout", &mut self.stdout), ("stderr", &mut self.stderr), ("pty", &mut self.pty)];
            for (name, target) in targets {
                if let Some(text) = output[name].as_str() {
                    target.extend(base64::engine::general_purpose::STANDARD.decode(text).expect("base64"));
                }
            }
        } else if event.get("keepalive").is_some() {
            self.keepalives += 1;
        } else {
            self.end = Some(event["end"].clone());
        }
    }

    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn error_code(&self) -> Option<&str> {
        self.error.as_ref().and_then(|error| error["code"].as_str())
    }
}

/// An encoded frame.
pub(crate) fn frame(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags];
    bytes.extend(u32::try_from(payload.len()).expect("a small payload").to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Standard base64.
pub(crate) fn base64_of(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Polls until the condition holds; panics after a while.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

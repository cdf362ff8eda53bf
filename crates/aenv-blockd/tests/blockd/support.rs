//! A daemon of its own for each test, on a real mount, and a client that connects again as Python does.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{json, Value};
use tempfile::TempDir;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers that look random and are the same in every run.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % limit
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(4))
            .flat_map(|_| (self.below(1 << 32) as u32).to_le_bytes())
            .take(length)
            .collect()
    }
}

/// A running daemon.
pub(crate) struct Daemon {
    pub(crate) scratch: TempDir,
    supervisor: Child,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Self {
        let scratch = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let supervisor = spawn(scratch.path(), options);
        let daemon = Self { scratch, supervisor };
        daemon.client();
        daemon
    }

    /// Starts the program again on the same state, once both processes are dead.
    pub(crate) fn start_again(&mut self) {
        self.supervisor = spawn(self.scratch.path(), &[]);
        self.client();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The file of an image.
    pub(crate) fn file(&self, image: &str) -> PathBuf {
        self.path("mount").join(image)
    }

    pub(crate) fn client(&self) -> Client {
        Client { socket: self.path("control"), stream: None, next: 0 }.greeted()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn supervisor_pid(&self) -> i32 {
        self.supervisor.id() as i32
    }

    pub(crate) fn server_pid(&self) -> i32 {
        self.client().call("hello", json!({}))["pid"].as_i64().unwrap() as i32
    }

    /// Who the kernel says listens on the control socket.
    pub(crate) fn listener_pid(&self) -> i32 {
        let stream = UnixStream::connect(self.path("control")).unwrap();
        nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials).unwrap().pid()
    }

    /// kill -9 of the server; returns when the process is gone.
    pub(crate) fn kill_server(&self) {
        let pid = self.server_pid();
        kill(pid);
        wait_until("the server is gone", || !is_running(pid));
    }

    pub(crate) fn kill_supervisor(&mut self) {
        self.supervisor.kill().unwrap();
        self.supervisor.wait().unwrap();
    }

    /// All processes of the program.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let state = self.path("state");
        let names = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| name.parse().ok())
            .filter(|pid| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words
                    .split(|&byte| byte == 0)
                    .any(|word| Path::new(std::ffi::OsStr::from_bytes(word)) == state)
            })
            .collect()
    }

    /// kill -9 of all processes at once; none of them can start another.
    pub(crate) fn kill_all(&mut self) {
        loop {
            let processes = self.processes();
            processes.iter().for_each(|&pid| send_signal(pid, Signal::SIGSTOP));
            processes.iter().for_each(|&pid| send_signal(pid, Signal::SIGKILL));
            let _ = self.supervisor.try_wait();
            if processes.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.supervisor.try_wait().unwrap().is_some()
    }

    /// Opens a disk over these layers with a writable layer in a directory of this name.
    pub(crate) fn open_disk(
        &self,
        name: &str,
        layers: &[&Path],
        directory: &str,
        size: Option<u64>,
    ) -> PathBuf {
        let writable = json!({ "directory": self.path(directory), "size_bytes": size });
        self.client().call("open", arguments(name, layers, writable, "disk"));
        self.file(name)
    }

    pub(crate) fn open_memory(&self, name: &str, layers: &[&Path]) -> PathBuf {
        self.client().call("open", arguments(name, layers, Value::Null, "memory"));
        self.file(name)
    }

    /// Seals the disk and waits for it; the layer has the name of the seal.
    pub(crate) fn seal(&self, name: &str, seal_id: &str, next: &str) -> PathBuf {
        let path = self.path(seal_id);
        let mut client = self.client();
        let order = json!({ "name": name, "seal_id": seal_id, "sealed_path": path, "next_directory": self.path(next) });
        client.call("seal", order);
        client.call("sealed", json!({ "name": name, "seal_id": seal_id }));
        path
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill_all();
        let _ = Command::new("umount").arg("-l").arg(self.path("mount")).stderr(Stdio::null()).status();
        if thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

pub(crate) fn arguments(name: &str, layers: &[&Path], writable: Value, purpose: &str) -> Value {
    let layers: Vec<Value> = layers.iter().map(|path| json!({ "kind": "file", "path": path })).collect();
    json!({ "name": name, "layers": layers, "writable": writable, "use": purpose, "owner": 0 })
}

pub(crate) fn command(scratch: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aenv-blockd"));
    for (option, name) in [("--state", "state"), ("--mount", "mount"), ("--control", "control")] {
        command.arg(option).arg(scratch.join(name));
    }
    command
}

fn spawn(scratch: &Path, options: &[&str]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(scratch.join("log")).unwrap();
    command(scratch).args(options).stderr(log).spawn().unwrap()
}

pub(crate) fn kill(pid: i32) {
    send_signal(pid, Signal::SIGKILL);
}

fn send_signal(pid: i32, signal: Signal) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
}

pub(crate) fn is_running(pid: i32) -> bool {
    // A zombie has no files any more.
    std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut files| files.next().is_some())
}

/// Waits for something that comes by itself.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A connection to the control socket that survives servers.
pub(crate) struct Client {
    socket: PathBuf,
    stream: Option<UnixStream>,
    next: u64,
}

impl Client {
    fn greeted(mut self) -> Self {
        self.call("hello", json!({}));
        self
    }

    /// Does a verb that must succeed, again and again until a server answers.
    pub(crate) fn call(&mut self, verb: &str, arguments: Value) -> Value {
        self.try_call(verb, arguments).unwrap_or_else(|error| panic!("{verb}: {error}"))
    }

    /// Does a verb that must fail, and returns the code of the failure.
    pub(crate) fn refuse(&mut self, verb: &str, arguments: Value) -> String {
        let error = self.try_call(verb, arguments).expect_err("the verb must fail");
        error["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn try_call(&mut self, verb: &str, arguments: Value) -> Result<Value, Value> {
        let began = Instant::now();
        loop {
            match self.exchange(verb, &arguments) {
                Ok(mut answer) if answer["error"].is_null() => return Ok(answer["result"].take()),
                Ok(mut answer) => return Err(answer["error"].take()),
                Err(error) => {
                    assert!(began.elapsed() < PATIENCE, "nobody answers: {error}");
                    self.stream = None;
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    fn exchange(&mut self, verb: &str, arguments: &Value) -> io::Result<Value> {
        self.next += 1;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(UnixStream::connect(&self.socket)?),
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = json!({ "version": 1, "id": self.next, "verb": verb, "arguments": arguments });
        send(stream, request.to_string().as_bytes())?;
        receive(stream)
    }
}

pub(crate) fn send(stream: &mut UnixStream, payload: &[u8]) -> io::Result<()> {
    stream.write_all(&(payload.len() as u32).to_be_bytes())?;
    stream.write_all(payload)
}

pub(crate) fn receive(stream: &mut UnixStream) -> io::Result<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut payload = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut payload)?;
    serde_json::from_slice(&payload).map_err(io::Error::other)
}

pub(crate) fn open_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// The whole content of a file by positional reads.
pub(crate) fn read_all(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

//! A daemon of its own for the measurement, and the verbs that it needs.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{json, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A daemon below a directory.
pub(crate) struct Daemon {
    directory: PathBuf,
    process: Child,
}

impl Daemon {
    pub(crate) fn start(program: &Path, directory: &Path) -> Outcome<Self> {
        let process = Command::new(program)
            .args([
                Path::new("--state"),
                &directory.join("state"),
                Path::new("--mount"),
                &directory.join("mount"),
            ])
            .args([Path::new("--control"), &directory.join("control")])
            .stderr(File::create(directory.join("log"))?)
            .spawn()?;
        let daemon = Self { directory: directory.to_owned(), process };
        let began = Instant::now();
        while daemon.call("hello", &json!({})).is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                return Err("the daemon does not answer".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    pub(crate) fn file(&self, image: &str) -> PathBuf {
        self.directory.join("mount").join(image)
    }

    /// An empty disk with room for its layers.
    pub(crate) fn open(&self, image: &str, size: u64) -> Outcome<PathBuf> {
        let writable = json!({ "directory": self.directory.join(format!("{image}-0")), "size_bytes": size });
        self.call(
            "open",
            &json!({ "name": image, "layers": [], "writable": writable, "use": "disk", "owner": 0 }),
        )?;
        Ok(self.file(image))
    }

    /// What was written becomes the layer of this number.
    pub(crate) fn seal(&self, image: &str, number: u64) -> Outcome<()> {
        let seal_id = format!("{image}-layer-{number}");
        let sealed_path = self.directory.join(&seal_id);
        let next_directory = self.directory.join(format!("{image}-{number}"));
        let order = json!({
            "name": image, "seal_id": seal_id, "sealed_path": sealed_path, "next_directory": next_directory,
        });
        self.call("seal", &order)?;
        self.call("sealed", &json!({ "name": image, "seal_id": seal_id }))?;
        Ok(())
    }

    pub(crate) fn close(&self, image: &str) -> Outcome<()> {
        self.call("close", &json!({ "name": image, "discard": true })).map(drop)
    }

    pub(crate) fn end(mut self) -> Outcome<()> {
        self.call("shutdown", &json!({}))?;
        self.process.wait()?;
        Ok(())
    }

    fn call(&self, verb: &str, arguments: &Value) -> Outcome<Value> {
        let mut stream = UnixStream::connect(self.directory.join("control"))?;
        let request = json!({ "version": 1, "id": 1, "verb": verb, "arguments": arguments }).to_string();
        stream.write_all(&(request.len() as u32).to_be_bytes())?;
        stream.write_all(request.as_bytes())?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer)?;
        let answer: Value = serde_json::from_slice(&answer)?;
        match answer["error"].as_object() {
            Some(error) => Err(format!("{verb}: {error:?}").into()),
            None => Ok(answer["result"].clone()),
        }
    }
}

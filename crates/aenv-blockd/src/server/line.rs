//! The line to whichever supervisor there is: what it says, and another supervisor when it dies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::Stop;
use crate::log;
use crate::supervisor::{word, Succession};

/// The way to say something to the supervisor.
pub(super) struct Line(Mutex<UnixStream>);

impl Line {
    /// Says a word. A supervisor that is gone hears nothing, and its successor asks for nothing.
    pub(super) fn say(&self, word: u8) {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.write_all(&[word]);
    }

    /// Listens for as long as there is somebody to listen to.
    pub(super) fn start(
        stream: UnixStream,
        succession: Succession,
        stop: Sender<Stop>,
    ) -> io::Result<Arc<Self>> {
        let line = Arc::new(Self(Mutex::new(stream.try_clone()?)));
        let ours = Arc::clone(&line);
        thread::Builder::new().name("line".into()).spawn(move || {
            let (mut stream, mut supervisor) = (stream, None);
            loop {
                hear(&mut stream, &stop);
                reap(supervisor.take());
                match ours.succeed(&succession) {
                    Ok((child, next)) => (supervisor, stream) = (Some(child), next),
                    Err(error) => {
                        // Machines still use the mount: it lives for as long as this process does.
                        return log::error("supervisor_not_succeeded", &[("reason", &error.to_string())]);
                    }
                }
            }
        })?;
        Ok(line)
    }

    fn succeed(&self, succession: &Succession) -> io::Result<(Child, UnixStream)> {
        log::error("supervisor_died", &[]);
        let (child, stream) = succession.start()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stream.try_clone()?;
        Ok((child, stream))
    }
}

/// Hears what a supervisor says until its end.
fn hear(stream: &mut UnixStream, stop: &Sender<Stop>) {
    let mut said = [0];
    loop {
        match stream.read(&mut said) {
            Ok(1) if said[0] == word::TERMINATE => {
                // The main thread listens for as long as the program lives.
                let _ = stop.send(Stop::EndIfIdle);
            }
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

fn reap(supervisor: Option<Child>) {
    if let Some(mut child) = supervisor {
        let _ = child.wait();
    }
}

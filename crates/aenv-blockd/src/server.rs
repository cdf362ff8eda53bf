//! One life of the server: takes over descriptors, makes the table true, serves, and ends in an orderly way. What
//! happens when it ends in a disorderly one is up to the supervisor.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread;

use aenv_layers::BootId;
use aenv_sources::{CacheOptions, SourceError, SourceFactory, SourceOptions};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::stat::{umask, Mode};

use crate::control::{self, Control};
use crate::fuse::{self, Device, FuseExporter, Nodes, Service};
use crate::layers::LayerStore;
use crate::log;
use crate::options::Options;
use crate::supervisor::{take, word, Handover};
use crate::table::{Table, TableError};

/// How the program shall end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// For good.
    End,
    /// With another server to take its place.
    Replace,
    /// For good, if no images are open.
    EndIfIdle,
    /// The mount is gone.
    MountGone,
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    /// What was handed over is not right.
    #[error("cannot take over from the supervisor")]
    Handover(#[source] io::Error),
    /// The device table cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The sources of remote layers cannot be used.
    #[error(transparent)]
    Sources(#[from] SourceError),
    /// The system refuses something that every server needs.
    #[error("cannot {0}")]
    System(&'static str, #[source] io::Error),
}

/// What a server takes over.
struct Inheritance {
    devices: Vec<Arc<Device>>,
    listener: UnixListener,
    line: UnixStream,
    /// Keeps the state directory locked while this process lives.
    _lock: OwnedFd,
}

/// Serves until told to end.
pub(crate) fn serve(words: &str) -> ExitCode {
    let handover: Handover = match serde_json::from_str(words) {
        Ok(handover) => handover,
        Err(error) => {
            log::error("server_refused", &[("reason", &error.to_string())]);
            return ExitCode::FAILURE;
        }
    };
    umask(Mode::from_bits_truncate(0o077));
    raise_descriptor_limit();
    let inheritance = match Inheritance::take(&handover) {
        Ok(inheritance) => inheritance,
        Err(error) => return refuse(None, &ServerError::Handover(error)),
    };
    let mut line = match inheritance.line.try_clone() {
        Ok(line) => line,
        Err(error) => return refuse(None, &ServerError::Handover(error)),
    };
    match Server::begin(&handover, inheritance) {
        Ok(server) => server.run(&mut line),
        Err(error) => refuse(Some(&mut line), &error),
    }
}

fn refuse(line: Option<&mut UnixStream>, error: &ServerError) -> ExitCode {
    log::error("server_refused", &[("reason", &log::chain(error))]);
    if let Some(line) = line {
        // A supervisor that is gone hears nothing, and nobody starts another server then.
        let _ = line.write_all(&[word::REFUSED]);
    }
    ExitCode::FAILURE
}

impl Inheritance {
    fn take(handover: &Handover) -> io::Result<Self> {
        let devices = handover.devices.iter().map(|&number| Ok(Arc::new(Device::new(take(number)?))));
        Ok(Self {
            devices: devices.collect::<io::Result<_>>()?,
            listener: take(handover.listener)?.into(),
            line: take(handover.line)?.into(),
            _lock: take(handover.lock)?,
        })
    }
}

struct Server {
    table: Arc<Table>,
    orders: Receiver<Stop>,
    flush_interval: std::time::Duration,
    _lock: OwnedFd,
}

impl Server {
    fn begin(handover: &Handover, inheritance: Inheritance) -> Result<Self, ServerError> {
        let options = &handover.options;
        let state = &options.state;
        let boot = BootId::of_this_host().map_err(|error| ServerError::System("read the boot id", error))?;
        let nodes = Nodes::load(&state.join("opens"), handover.mount_id)
            .map_err(|error| ServerError::System("read who has files open", error))?;
        let nodes = Arc::new(nodes);
        let Some(first) = inheritance.devices.first() else {
            let error = io::Error::other("no descriptor of the mount was handed over");
            return Err(ServerError::Handover(error));
        };
        let exporter =
            Arc::new(FuseExporter::new(options.mount.clone(), Arc::clone(first), Arc::clone(&nodes)));
        let layers = LayerStore::new(options.mount.clone(), open_sources(options)?);
        let table = Table::load(&state.join("table"), layers, Arc::clone(&exporter) as _, boot)?;
        let table = Arc::new(table);
        let threads = |error| ServerError::System("start threads", error);
        table.recover().map_err(threads)?;
        if handover.agreement.can_resend() {
            // Before the first thread reads: afterwards, its own requests would be handed out twice.
            exporter.ask_for_unanswered();
        }
        let (stop, orders) = channel();
        let service = Arc::new(Service { nodes });
        let gone = stop.clone();
        fuse::start(inheritance.devices, &service, move || {
            // The main thread listens for as long as the program lives.
            let _ = gone.send(Stop::MountGone);
        })
        .map_err(threads)?;
        start_listening(inheritance.line, stop.clone()).map_err(threads)?;
        let control = Arc::new(Control {
            table: Arc::clone(&table),
            mount: options.mount.clone(),
            agreement: handover.agreement,
        });
        let listener = inheritance.listener;
        thread::Builder::new()
            .name("accept".into())
            .spawn(move || control::serve(&listener, &control, &stop))
            .map_err(threads)?;
        log::info("server_ready", &[("mount", &options.mount), ("pid", &u64::from(std::process::id()))]);
        Ok(Self { table, orders, flush_interval: options.flush_interval, _lock: inheritance._lock })
    }

    /// Looks after disks until it is time to end.
    fn run(self, line: &mut UnixStream) -> ExitCode {
        // A supervisor that died meanwhile does not need to know.
        let _ = line.write_all(&[word::READY]);
        loop {
            match self.orders.recv_timeout(self.flush_interval) {
                Err(RecvTimeoutError::Timeout) => self.table.look_after_disks(),
                Ok(Stop::Replace) => {
                    self.table.flush_all();
                    log::info("server_replaced", &[]);
                    return ExitCode::SUCCESS;
                }
                Ok(Stop::EndIfIdle) if self.table.count() > 0 => {
                    self.table.flush_all();
                    log::warning("end_refused", &[("open_images", &(self.table.count() as u64))]);
                }
                Ok(stop @ (Stop::End | Stop::EndIfIdle | Stop::MountGone)) => {
                    self.table.flush_all();
                    log::info("server_ended", &[("mount_is_gone", &u64::from(stop == Stop::MountGone))]);
                    let _ = line.write_all(&[word::END]);
                    return ExitCode::SUCCESS;
                }
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
        }
    }
}

/// Hears what the supervisor has to say, and its end.
fn start_listening(mut line: UnixStream, stop: Sender<Stop>) -> io::Result<()> {
    thread::Builder::new().name("line".into()).spawn(move || loop {
        let mut said = [0];
        match line.read(&mut said) {
            Ok(1) if said[0] == word::TERMINATE => {
                let _ = stop.send(Stop::EndIfIdle);
            }
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => {
                // Machines still use the mount: it lives for as long as this process does.
                log::error("supervisor_died", &[("line", &(line.as_raw_fd() as u64))]);
                return;
            }
        }
    })?;
    Ok(())
}

fn open_sources(options: &Options) -> Result<SourceFactory, SourceError> {
    let cache = options.cache.as_ref();
    let cache = cache.map(|cache| CacheOptions::new(cache.directory.clone(), cache.bytes));
    SourceFactory::new(SourceOptions { cache, ..SourceOptions::default() })
}

/// Every layer and every writable disk needs descriptors.
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard {
            // A refusal leaves the limit as it is, and opens then fail by name.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}

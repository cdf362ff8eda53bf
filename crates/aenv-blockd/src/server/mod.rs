//! One life of the server: takes over descriptors, makes the table true, serves, and ends in an orderly way. What
//! happens when it ends in a disorderly one is up to the supervisor.

mod line;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aenv_layers::BootId;
use aenv_sources::{CacheOptions, SourceError, SourceFactory, SourceOptions};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::stat::{umask, Mode};

use crate::control::{self, Control};
use crate::export::{ByPurpose, Exporter};
use crate::fuse::{self, Device, FuseExporter, Nodes, Service};
use crate::layers::LayerStore;
use crate::log;
use crate::options::Options;
use crate::supervisor::{take, word, Handover, Succession};
use crate::table::{Table, TableError};
use crate::ublk::{self, UblkError, UblkExporter};
use line::Line;

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
    /// Disks cannot be block devices any more.
    #[error("cannot show disks as block devices")]
    BlockDevices(#[from] UblkError),
    /// The system refuses something that every server needs.
    #[error("cannot {0}")]
    System(&'static str, #[source] io::Error),
}

/// What a server takes over.
struct Inheritance {
    /// Kept for a supervisor that may have to be started; the server uses copies.
    succession: Succession,
    line: UnixStream,
}

/// Serves until told to end.
pub(crate) fn serve(handover: &Handover) -> ExitCode {
    umask(Mode::from_bits_truncate(0o077));
    raise_descriptor_limit();
    let inheritance = match Inheritance::take(handover) {
        Ok(inheritance) => inheritance,
        Err(error) => return refuse(None, &ServerError::Handover(error)),
    };
    let last_words = inheritance.line.try_clone().ok();
    match Server::begin(inheritance) {
        Ok(server) => server.run(),
        Err(error) => refuse(last_words, &error),
    }
}

fn refuse(line: Option<UnixStream>, error: &ServerError) -> ExitCode {
    log::error("server_refused", &[("reason", &log::chain(error))]);
    if let Some(mut line) = line {
        // A supervisor that is gone hears nothing, and nobody starts another server then.
        let _ = line.write_all(&[word::REFUSED]);
    }
    ExitCode::FAILURE
}

impl Inheritance {
    fn take(handover: &Handover) -> io::Result<Self> {
        let devices = handover.devices.iter().map(|&number| Ok(Arc::new(Device::new(take(number)?))));
        let succession = Succession {
            options: handover.options.clone(),
            agreement: handover.agreement,
            mount_id: handover.mount_id,
            devices: devices.collect::<io::Result<_>>()?,
            listener: take(handover.listener)?.into(),
            lock: take(handover.lock)?,
        };
        Ok(Self { succession, line: take(handover.line)?.into() })
    }
}

struct Server {
    table: Arc<Table>,
    orders: Receiver<Stop>,
    line: Arc<Line>,
    flush_interval: Duration,
}

impl Server {
    fn begin(inheritance: Inheritance) -> Result<Self, ServerError> {
        let Inheritance { succession, line } = inheritance;
        let options = succession.options.clone();
        let devices = succession.devices.clone();
        let listener = succession.listener.try_clone().map_err(ServerError::Handover)?;
        let Loaded { table, nodes, files, disks } = load(&succession)?;
        let threads = |error| ServerError::System("start threads", error);
        table.recover().map_err(threads)?;
        if let Some(disks) = disks {
            disks.remove_rest();
        }
        if succession.agreement.can_resend() {
            // Before the first thread reads: afterwards, its own requests would be handed out twice.
            files.ask_for_unanswered();
        }
        let (stop, orders) = channel();
        let gone = stop.clone();
        fuse::start(
            devices,
            &Arc::new(Service { nodes, passes_through: succession.agreement.can_pass_through() }),
            move || {
                // The main thread listens for as long as the program lives.
                let _ = gone.send(Stop::MountGone);
            },
        )
        .map_err(threads)?;
        let (mount, agreement) = (options.mount.clone(), succession.agreement);
        let control = Arc::new(Control { table: Arc::clone(&table), mount, agreement });
        let line = Line::start(line, succession, stop.clone()).map_err(threads)?;
        thread::Builder::new()
            .name("accept".into())
            .spawn(move || control::serve(&listener, &control, &stop))
            .map_err(threads)?;
        log::info("server_ready", &[("mount", &options.mount), ("pid", &u64::from(std::process::id()))]);
        Ok(Self { table, orders, line, flush_interval: options.flush_interval })
    }

    /// Looks after disks until it is time to end.
    fn run(self) -> ExitCode {
        self.line.say(word::READY);
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
                    self.line.say(word::END);
                    return ExitCode::SUCCESS;
                }
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
        }
    }
}

/// What an earlier server left.
struct Loaded {
    table: Arc<Table>,
    nodes: Arc<Nodes>,
    files: Arc<FuseExporter>,
    disks: Option<Arc<UblkExporter>>,
}

/// Reads everything that an earlier server left.
fn load(succession: &Succession) -> Result<Loaded, ServerError> {
    let options = &succession.options;
    let boot = BootId::of_this_host().map_err(|error| ServerError::System("read the boot id", error))?;
    let nodes = Nodes::load(&options.state.join("opens"), succession.mount_id)
        .map_err(|error| ServerError::System("read who has files open", error))?;
    let nodes = Arc::new(nodes);
    let Some(device) = succession.devices.first() else {
        return Err(ServerError::Handover(io::Error::other("no descriptor of the mount was handed over")));
    };
    let files = FuseExporter::new(options.mount.clone(), Arc::clone(device), Arc::clone(&nodes));
    let files = Arc::new(files);
    let disks = block_devices(options)?.map(Arc::new);
    let exporter: Arc<dyn Exporter> = match &disks {
        Some(disks) => Arc::new(ByPurpose { disks: Arc::clone(disks) as _, memory: Arc::clone(&files) as _ }),
        None => Arc::clone(&files) as _,
    };
    let layers = LayerStore::new(options.mount.clone(), open_sources(options)?);
    let table = Table::load(&options.state.join("table"), layers, exporter, boot)?;
    Ok(Loaded { table: Arc::new(table), nodes, files, disks })
}

/// The exporter of disks, if they are block devices here. If not, those of an earlier life go.
fn block_devices(options: &Options) -> Result<Option<UblkExporter>, ServerError> {
    let (state, mount) = (&options.state, &options.mount);
    if options.exporter.needs_driver() {
        return Ok(Some(UblkExporter::begin(state, mount)?));
    }
    if let Err(error) = ublk::clean(state, mount) {
        log::warning("devices_not_removed", &[("reason", &log::chain(&error))]);
    }
    Ok(None)
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

//! First process of the guest: from the initramfs to a running daemon on the user's disk, and back to power-off.
//! Nothing of it is placed on that disk: after the switch it lives in memory only.

mod beneath;
mod boot_options;
mod console;
mod device;
mod initramfs;
mod modules;
mod mounts;
mod names;
mod network;
mod power;
mod supervisor;
mod workload;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::process::ExitCode;

use boot_options::{BootOptions, BootOptionsError};

/// What programs on current distributions find: low for those that loop over all descriptors, high for those that ask.
const OPEN_FILES_SOFT: u64 = 1024;
const OPEN_FILES_HARD: u64 = 524_288;
/// What the daemon, and through it each process, searches for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why the guest could not come up.
#[derive(Debug, thiserror::Error)]
enum InitError {
    /// The kernel command line has an `aenv.` key that we do not understand.
    #[error("kernel command line: {0}")]
    BootOptions(#[from] BootOptionsError),
    /// Something that must be done was refused by the kernel.
    #[error("{what}: {source}")]
    System {
        /// What was tried, on what.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl InitError {
    fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}

/// Brings the guest up and stays until it goes down. Returns only when it is not the first process after all.
pub(crate) fn run() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        console::print(&format!("fatal: {panic}"));
        power::off_at_once();
    }));
    let Err(error) = come_up();
    console::print(&format!("fatal: {error}"));
    power::off_at_once();
    ExitCode::FAILURE
}

fn come_up() -> Result<Infallible, InitError> {
    // Devices come first: without them there may be no console to complain on.
    mounts::mount_early()?;
    console::open();
    let options = BootOptions::parse(&read_command_line()?)?;
    modules::load_all()?;
    mounts::mount_root(&options)?;
    initramfs::switch_to_root()?;
    mounts::mount_system()?;
    prepare_limits();
    workload::prepare();
    std::env::set_var("PATH", PATH);
    supervisor::run(&options, || {
        names::write(&options);
        // Last: whoever can reach the daemon finds a guest that is complete.
        network::configure(&options);
    })
}

fn read_command_line() -> Result<String, InitError> {
    fs::read_to_string("/proc/cmdline").map_err(|error| InitError::system("read /proc/cmdline", error))
}

/// The daemon inherits both; its processes get ordinary ones.
fn prepare_limits() {
    use nix::sys::resource::{setrlimit, Resource};
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-1000") {
        console::print(&format!("oom_score_adj: {error}"));
    }
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES_SOFT, OPEN_FILES_HARD) {
        console::print(&format!("limit of open files: {error}"));
    }
}

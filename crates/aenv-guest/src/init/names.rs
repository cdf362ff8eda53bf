//! Host name, resolver and the table of hosts. None of it is vital: a guest without names still runs.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use super::boot_options::BootOptions;
use super::{beneath, console};

/// Gives the guest its names, as far as the image lets us.
pub(super) fn write(options: &BootOptions) {
    let host_name = options.host_name.as_deref().unwrap_or("localhost");
    let steps = [
        ("host name", nix::unistd::sethostname(host_name).map_err(io::Error::from)),
        ("/etc/resolv.conf", write_resolver(&options.name_servers)),
        ("/etc/hosts", write_hosts(host_name)),
    ];
    for (what, outcome) in steps {
        if let Err(error) = outcome {
            console::print(&format!("{what}: {error}"));
        }
    }
}

/// Also replaces a link into a resolver service that does not run here.
fn write_resolver(name_servers: &[Ipv4Addr]) -> io::Result<()> {
    if name_servers.is_empty() {
        return Ok(());
    }
    let mut content = String::new();
    for server in name_servers {
        // Writing to a string does not fail.
        let _ = writeln!(content, "nameserver {server}");
    }
    beneath::make_directory(Path::new("/etc"))?;
    beneath::replace_file(Path::new("/etc/resolv.conf"), &content)
}

/// Images that have a table keep it.
fn write_hosts(host_name: &str) -> io::Result<()> {
    let path = Path::new("/etc/hosts");
    if fs::metadata(path).is_ok() {
        return Ok(());
    }
    let own = if host_name == "localhost" { String::new() } else { format!("127.0.1.1 {host_name}\n") };
    beneath::make_directory(Path::new("/etc"))?;
    beneath::replace_file(
        path,
        &format!("127.0.0.1 localhost\n{own}::1 localhost ip6-localhost ip6-loopback\n"),
    )
}

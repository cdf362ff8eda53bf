//! Loopback, the one outer interface and its default route. Without that interface the guest runs all the same.

use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{socket, AddressFamily, SockFlag, SockType};

use super::boot_options::{BootOptions, Interface};
use super::console;

const OUTER: &str = "eth0";
/// Drivers may probe in the background; a machine without the interface pays this once.
const APPEARANCE_LIMIT: Duration = Duration::from_millis(300);

/// Brings the interfaces up, and says what did not work.
pub(super) fn configure(options: &BootOptions) {
    let outcome = control_socket().and_then(|control| {
        control.raise("lo")?;
        match options.interface {
            Some(interface) if wait_for_outer() => control.set_up_outer(interface, options.gateway),
            Some(_) => Err(io::Error::new(io::ErrorKind::NotFound, format!("no {OUTER}"))),
            None => Ok(()),
        }
    });
    if let Err(error) = outcome {
        console::print(&format!("network: {error}"));
    }
}

fn wait_for_outer() -> bool {
    let path = Path::new("/sys/class/net").join(OUTER);
    let deadline = Instant::now() + APPEARANCE_LIMIT;
    while !path.exists() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Any socket will do to speak about interfaces.
struct Control(OwnedFd);

fn control_socket() -> io::Result<Control> {
    Ok(Control(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?))
}

impl Control {
    fn set_up_outer(&self, interface: Interface, gateway: Option<Ipv4Addr>) -> io::Result<()> {
        self.set_address(libc::SIOCSIFADDR, interface.address)?;
        self.set_address(libc::SIOCSIFNETMASK, interface.mask())?;
        self.raise(OUTER)?;
        gateway.map_or(Ok(()), |gateway| self.add_default_route(gateway))
    }

    fn set_address(&self, request: libc::Ioctl, address: Ipv4Addr) -> io::Result<()> {
        let mut message = interface_request(OUTER);
        message.ifr_ifru.ifru_addr = socket_address(address);
        self.call(request, &mut message)
    }

    fn raise(&self, name: &str) -> io::Result<()> {
        let mut message = interface_request(name);
        self.call(libc::SIOCGIFFLAGS, &mut message)?;
        // SAFETY: the call above filled in the flags.
        let flags = unsafe { message.ifr_ifru.ifru_flags };
        message.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.call(libc::SIOCSIFFLAGS, &mut message)
    }

    fn add_default_route(&self, gateway: Ipv4Addr) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid `rtentry`: no device, no metrics.
        let mut route = unsafe { mem::zeroed::<libc::rtentry>() };
        route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = socket_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        self.call(libc::SIOCADDRT, &mut route)
    }

    fn call<T>(&self, request: libc::Ioctl, message: &mut T) -> io::Result<()> {
        // SAFETY: every request here takes a pointer to the structure it is called with, which is alive and writable.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(message)) };
        nix::errno::Errno::result(outcome)?;
        Ok(())
    }
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut message = unsafe { mem::zeroed::<libc::ifreq>() };
    for (target, byte) in message.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *target = byte as libc::c_char;
    }
    message
}

/// An IPv4 address in the kernel's general form.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let inner = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: both structures have the same size, and the general one allows any bytes after the family.
    unsafe { mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_network_order() {
        let general = socket_address([169, 254, 0, 21].into());
        assert_eq!(i32::from(general.sa_family), libc::AF_INET);
        assert_eq!(
            general.sa_data[2..6].iter().map(|byte| *byte as u8).collect::<Vec<_>>(),
            [169, 254, 0, 21]
        );
    }

    #[test]
    fn long_names_are_cut_and_terminated() {
        let message = interface_request(&"x".repeat(40));
        assert_eq!(message.ifr_name[libc::IFNAMSIZ - 1], 0);
    }
}

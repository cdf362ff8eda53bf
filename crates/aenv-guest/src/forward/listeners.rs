//! Which sockets listen, as the kernel tells in `/proc/net/tcp` and `tcp6`, and which of them need a forwarder.
//! Parsing and planning are pure and total.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The state of a listening socket.
const STATE_LISTEN: &str = "0A";
/// A guest with more listening sockets has its first ones served.
const LISTENERS_MAX: usize = 4096;

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listener {
    /// Where it listens.
    pub(super) address: IpAddr,
    /// On which port.
    pub(super) port: u16,
}

/// All listening TCP sockets of this network namespace.
pub(super) fn read() -> Vec<Listener> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| File::open(table).ok())
        .flat_map(|file| parse(BufReader::new(file)))
        .collect()
}

/// The kernel lists the listening sockets first: what comes after the first other one need not be read, however many
/// connections there are.
fn parse(table: impl BufRead) -> Vec<Listener> {
    let lines = table.lines().map_while(Result::ok).skip(1);
    lines.map_while(|line| parse_line(&line)).take(LISTENERS_MAX).collect()
}

fn parse_line(line: &str) -> Option<Listener> {
    let mut fields = line.split_ascii_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    if state != STATE_LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some(Listener { address: parse_address(address)?, port: u16::from_str_radix(port, 16).ok()? })
}

/// Words of 32 bits in the machine's byte order, each holding bytes in network order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| -> Option<[u8; 4]> {
        let digits = text.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// The ports to forward, each with the address to forward to: those that listen on the loopback address proper and
/// nowhere wider.
///
/// Other addresses of the loopback network are somebody's way of keeping a service private.
pub(super) fn plan(listeners: &[Listener], excluded_port: u16, ports_max: usize) -> BTreeMap<u16, IpAddr> {
    let mut plan = BTreeMap::new();
    for listener in listeners.iter().filter(|listener| is_loopback_proper(listener.address)) {
        let is_wide =
            listeners.iter().any(|other| other.port == listener.port && other.address.is_unspecified());
        if listener.port == excluded_port
            || is_wide
            || (plan.len() >= ports_max && !plan.contains_key(&listener.port))
        {
            continue;
        }
        let target = plan.entry(listener.port).or_insert(listener.address);
        // A service that has both families is reached by the older one.
        *target = (*target).min(listener.address);
    }
    plan
}

fn is_loopback_proper(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";

    fn listener(address: &str, port: u16) -> Listener {
        Listener { address: address.parse().expect("an address"), port }
    }

    fn line(address: IpAddr, port: u16, state: &str) -> String {
        let bytes: Vec<u8> = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let words: String = bytes
            .chunks(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().expect("four bytes"))))
            .collect();
        format!(
            "   0: {words}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0\n"
        )
    }

    fn table(lines: &[String]) -> String {
        HEADER.to_owned() + &lines.concat()
    }

    #[test]
    fn listeners_are_read_up_to_the_first_connection() {
        let local = Ipv4Addr::LOCALHOST.into();
        let text = table(&[line(local, 3000, "0A"), line(local, 3000, "01"), line(local, 4000, "0A")]);
        assert_eq!(parse(text.as_bytes()), [listener("127.0.0.1", 3000)]);
    }

    #[test]
    fn mapped_addresses_are_the_older_family() {
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
        let text = table(&[line(mapped, 1, "0A"), line(Ipv6Addr::LOCALHOST.into(), 2, "0A")]);
        assert_eq!(parse(text.as_bytes()), [listener("127.0.0.1", 1), listener("::1", 2)]);
    }

    #[test]
    fn only_private_ports_are_forwarded() {
        let listeners = [
            listener("127.0.0.1", 3000),
            listener("::1", 3000),
            listener("::1", 3001),
            listener("127.0.0.1", 80),
            listener("0.0.0.0", 80),
            listener("127.0.0.1", 81),
            listener("::", 81),
            listener("127.0.0.53", 53),
            listener("10.0.0.1", 90),
            listener("127.0.0.1", 49983),
        ];
        let expected = BTreeMap::from([
            (3000, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (3001, IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ]);
        assert_eq!(plan(&listeners, 49983, 100), expected);
    }

    #[test]
    fn the_number_of_ports_is_bounded() {
        let listeners: Vec<Listener> = (1..100).map(|port| listener("127.0.0.1", port)).collect();
        assert_eq!(plan(&listeners, 0, 10).len(), 10);
    }

    #[test]
    fn the_kernels_own_table_has_our_listener() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = socket.local_addr().expect("bound").port();
        assert!(read().contains(&listener("127.0.0.1", port)));
    }

    proptest! {
        #[test]
        fn written_lines_are_read(bytes in any::<[u8; 16]>(), port in any::<u16>()) {
            let address = IpAddr::from(bytes);
            let read = parse_line(&line(address, port, "0A"));
            prop_assert_eq!(read, Some(Listener { address: address.to_canonical(), port }));
        }

        #[test]
        fn any_line_is_survived(line in "(?s).{0,80}") {
            parse_line(&line);
        }
    }
}

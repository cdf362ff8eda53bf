//! Which addresses a remote may lead us to. Checked on what is connected to, so that a name that resolves differently
//! a moment later wins nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::Error;

/// Services of clouds that hand out credentials or configuration, outside of the link-local range.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// All addresses of a host are reserved.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the address is reserved")]
pub(super) struct ReservedAddress;

/// Resolves names, and drops addresses that nobody is led to.
#[derive(Default)]
pub(super) struct GuardedResolver {
    inner: DefaultResolver,
    allows_loopback: bool,
}

impl GuardedResolver {
    pub(super) fn new(allows_loopback: bool) -> Self {
        Self { inner: DefaultResolver::default(), allows_loopback }
    }

    fn allows(&self, address: IpAddr) -> bool {
        let address = embedded(address);
        if address.is_loopback() {
            return self.allows_loopback;
        }
        !is_reserved(address)
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GuardedResolver")
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in found.iter().filter(|address| self.allows(address.ip())) {
            allowed.push(*address);
        }
        if allowed.is_empty() {
            return Err(Error::Other(Box::new(ReservedAddress)));
        }
        Ok(allowed)
    }
}

fn is_reserved(address: IpAddr) -> bool {
    let has_no_host = address.is_unspecified() || address.is_multicast();
    let is_on_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    has_no_host || is_on_link || METADATA.contains(&address)
}

/// The IPv4 address within an IPv6 one that stands for it: mapped, compatible, NAT64, 6to4.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let octets = six.octets();
    let at = match six.segments() {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return address,
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => 12,
        [0x2002, ..] => 2,
        _ => return address,
    };
    IpAddr::from([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(text: &str) -> bool {
        GuardedResolver::new(false).allows(text.parse().unwrap())
    }

    #[test]
    fn nobody_is_led_to_this_host_its_link_or_its_cloud() {
        for text in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
        ] {
            assert!(!allows(text), "{text}");
        }
    }

    #[test]
    fn networks_public_and_private_are_open() {
        for text in ["10.1.2.3", "192.168.1.1", "172.16.0.1", "1.1.1.1", "2606:4700::1111", "fd12:3456::1"] {
            assert!(allows(text), "{text}");
        }
    }

    #[test]
    fn a_source_on_this_host_may_stay_there() {
        let guard = GuardedResolver::new(true);
        assert!(guard.allows("127.0.0.1".parse().unwrap()));
        assert!(!guard.allows("169.254.169.254".parse().unwrap()));
    }
}

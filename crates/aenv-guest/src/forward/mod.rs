//! Makes ports that listen on the guest's loopback only reachable on its external address, as many development servers
//! need. Looks for listeners at intervals; changes nothing in the guest's network.

mod listeners;
mod relay;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use tokio::time::Instant;

use self::relay::Relay;
use crate::state::Daemon;

/// The interface that the host reaches.
const EXTERNAL_INTERFACE: &str = "eth0";
/// Ports forwarded at once; a guest that opens more does so to test us.
const PORTS_MAX: usize = 256;
/// How often to look when nothing has changed for a while: the longest wait for a new port.
const QUIET_INTERVAL: Duration = Duration::from_millis(800);
/// How often to look when something has just changed: servers are often restarted.
const BUSY_INTERVAL: Duration = Duration::from_millis(200);
/// How long after a change it counts as recent.
const BUSY_FOR: Duration = Duration::from_secs(5);

/// Runs for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut forwarder = Forwarder::default();
    let mut last_change = Instant::now();
    loop {
        if forwarder.reconcile(daemon.options.port).await {
            last_change = Instant::now();
        }
        let is_busy = last_change.elapsed() < BUSY_FOR;
        tokio::time::sleep(if is_busy { BUSY_INTERVAL } else { QUIET_INTERVAL }).await;
    }
}

/// Rounds between two looks at the interface, which costs more than a look at the listeners.
const ADDRESS_ROUNDS: u32 = 16;

/// The ports being forwarded.
#[derive(Debug, Default)]
struct Forwarder {
    round: u32,
    external: Option<Ipv4Addr>,
    relays: BTreeMap<u16, Relay>,
}

impl Forwarder {
    /// Starts and stops relays as the listeners demand; says whether anything changed.
    async fn reconcile(&mut self, excluded_port: u16) -> bool {
        self.find_external();
        let Some(external) = self.external else { return false };
        let wanted = listeners::plan(&listeners::read(), excluded_port, PORTS_MAX);
        let count = self.relays.len();
        self.relays.retain(|port, relay| wanted.get(port) == Some(&relay.target()));
        let mut has_changed = self.relays.len() != count;
        for (port, target) in wanted {
            if self.relays.contains_key(&port) {
                continue;
            }
            // A service of the guest may have the address; it is looked at again next time.
            if let Ok(relay) = Relay::start(external, SocketAddr::new(target, port)).await {
                self.relays.insert(port, relay);
                has_changed = true;
            }
        }
        has_changed
    }

    /// The address appears once, when the guest boots, and hardly ever changes.
    fn find_external(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.external.is_some() && self.round % ADDRESS_ROUNDS != 0 {
            return;
        }
        let external = external_address();
        if external != self.external {
            self.relays.clear();
            self.external = external;
        }
    }
}

/// The IPv4 address of the external interface, when there is one.
fn external_address() -> Option<Ipv4Addr> {
    getifaddrs().ok()?.find_map(|interface| {
        let is_external = interface.interface_name == EXTERNAL_INTERFACE;
        interface.address.filter(|_| is_external)?.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::ip)
    })
}

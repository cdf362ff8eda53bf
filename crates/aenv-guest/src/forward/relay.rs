//! One forwarded port: accepts on the external address and carries bytes to the loopback listener. Knows no protocol.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;

/// Connections of all forwarded ports together; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1024;
/// Buffer per direction and connection.
const BUFFER_BYTES: usize = 16 << 10;
/// Rest after a failed accept: out of descriptors is temporary, and spinning would make it worse.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

static CONNECTIONS: Semaphore = Semaphore::const_new(CONNECTIONS_MAX);

/// A port being forwarded until this is dropped. Connections that are open then live on.
#[derive(Debug)]
pub(super) struct Relay {
    target: IpAddr,
    accepting: AbortHandle,
}

impl Relay {
    /// Starts forwarding. Fails when somebody has the address already.
    pub(super) async fn start(external: Ipv4Addr, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((external, target.port())).await?;
        let accepting = tokio::spawn(accept(listener, target)).abort_handle();
        Ok(Self { target: target.ip(), accepting })
    }

    /// Where the bytes go.
    pub(super) fn target(&self) -> IpAddr {
        self.target
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr) {
    loop {
        // The semaphore is never closed.
        let Ok(place) = CONNECTIONS.acquire().await else { return };
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(carry(client, target, place))),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// When the service does not answer any more, the client sees its connection closed.
async fn carry(mut client: TcpStream, target: SocketAddr, _place: SemaphorePermit<'static>) {
    let Ok(mut service) = TcpStream::connect(target).await else { return };
    // Small messages must not wait for acknowledgements; without it they are only slower.
    let _ = client.set_nodelay(true).and_then(|()| service.set_nodelay(true));
    // Either side may break off; both have noticed.
    let _ =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut service, BUFFER_BYTES, BUFFER_BYTES).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Another address of the loopback network plays the external one.
    const EXTERNAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    async fn service() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    #[tokio::test]
    async fn bytes_and_half_closes_pass_both_ways() {
        let (listener, target) = service().await;
        let _relay = Relay::start(EXTERNAL, target).await.expect("forwarding");
        let mut client = TcpStream::connect((EXTERNAL, target.port())).await.expect("connected");
        client.write_all(b"question").await.expect("sent");
        client.shutdown().await.expect("half closed");
        let (mut server, _) = listener.accept().await.expect("accepted");
        let mut question = String::new();
        server.read_to_string(&mut question).await.expect("read to the end");
        server.write_all(b"answer").await.expect("sent");
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("read to the end");
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    }

    #[tokio::test]
    async fn a_dropped_relay_frees_its_address() {
        let (_listener, target) = service().await;
        let relay = Relay::start(EXTERNAL, target).await.expect("forwarding");
        assert!(Relay::start(EXTERNAL, target).await.is_err(), "the address is taken");
        drop(relay);
        tokio::task::yield_now().await;
        Relay::start(EXTERNAL, target).await.expect("forwarding again");
    }
}

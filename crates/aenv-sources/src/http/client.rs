//! One request, one answer. Redirects are not followed here, and no status is an error.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{TlsConfig, TlsProvider};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::address::{GuardedResolver, ReservedAddress};
use super::{roots, Attempts, Deadline, Failure, Place, Response};
use crate::error::{Misbehaviour, Prohibition, SourceError};

const USER_AGENT: &str = concat!("agentenv/", env!("CARGO_PKG_VERSION"));
const MAX_HEADERS: usize = 64 << 10;
const MAX_IDLE_CONNECTIONS: usize = 64;

/// How remotes are spoken to.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// A file of certificates (PEM) that are believed besides those of the host's trust store.
    pub authorities_path: Option<PathBuf>,
    /// Time to find and reach a host.
    pub connect_timeout: Duration,
    /// Time for one request and its whole answer.
    pub attempt_timeout: Duration,
    /// Time for all attempts of one read. A guest waits this long before it sees an error.
    pub patience: Duration,
    /// Connections to one host that are kept open between requests.
    pub idle_connections: usize,
    /// When a remote ignores ranges: how many bytes before the wanted ones are read and dropped.
    pub skip_limit_bytes: u64,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            authorities_path: None,
            connect_timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(20),
            patience: Duration::from_secs(60),
            idle_connections: 16,
            skip_limit_bytes: 4 << 20,
        }
    }
}

/// Sends requests. Connections are kept open and shared.
pub(crate) struct HttpClient {
    network: Agent,
    /// For sources on this host itself, which may stay here.
    local: Agent,
    options: HttpOptions,
}

impl HttpClient {
    pub(crate) fn new(options: HttpOptions) -> Result<Self, SourceError> {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(roots::load(options.authorities_path.as_deref())?)
            .build();
        Ok(Self { network: agent(&options, &tls, false), local: agent(&options, &tls, true), options })
    }

    pub(crate) fn attempts(&self) -> Attempts {
        Attempts { patience: self.options.patience }
    }

    pub(crate) fn skip_limit(&self) -> u64 {
        self.options.skip_limit_bytes
    }

    /// Sends one GET.
    pub(crate) fn get(
        &self,
        place: &Place,
        headers: &[(&str, &str)],
        deadline: Deadline,
    ) -> Result<Response<Body>, Failure> {
        let Some(left) = deadline.remaining() else { return Err(Failure::passing("no time left")) };
        let agent = if place.allows_loopback() { &self.local } else { &self.network };
        let mut request = agent.get(place.uri());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // Settings of a request make ureq build its TLS settings anew, so they are used at the end only.
        if left < self.options.attempt_timeout {
            request = request.config().timeout_global(Some(left)).build();
        }
        request.call().map_err(|error| failed(place, error))
    }
}

/// Reads a short body to its end, so that the connection can be used again.
pub(crate) fn discard(mut response: Response<Body>) {
    const SHORT: u64 = 16 << 10;
    if response.body().content_length().is_some_and(|length| length <= SHORT) {
        // What fails here fails again, and is reported, when the connection is used.
        let _ = std::io::copy(&mut response.body_mut().as_reader(), &mut std::io::sink());
    }
}

fn agent(options: &HttpOptions, tls: &TlsConfig, allows_loopback: bool) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls.clone())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A proxy would resolve names itself, behind the back of the guard.
        .proxy(None)
        .user_agent(USER_AGENT)
        .accept_encoding("identity")
        .max_response_header_size(MAX_HEADERS)
        .max_idle_connections(MAX_IDLE_CONNECTIONS)
        .max_idle_connections_per_host(options.idle_connections)
        .timeout_resolve(Some(options.connect_timeout))
        .timeout_connect(Some(options.connect_timeout))
        .timeout_global(Some(options.attempt_timeout))
        .build();
    Agent::with_parts(config, DefaultConnector::default(), GuardedResolver::new(allows_loopback))
}

fn failed(place: &Place, error: ureq::Error) -> Failure {
    use ureq::Error;
    match error {
        Error::Other(cause) if cause.is::<ReservedAddress>() => {
            Failure::Final(SourceError::Forbidden { place: place.to_string(), reason: Prohibition::Address })
        }
        // The library's message would print the whole address.
        Error::BadUri(_) | Error::Http(_) => Failure::Final(place.misbehaved(Misbehaviour::Redirect)),
        other => Failure::passing(other.to_string()),
    }
}

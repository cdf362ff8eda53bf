//! One blob of a repository, fetched by range: from the registry itself, or from where it redirects.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::repository::{Authorization, Repository};
use crate::digest::Digest;
use crate::error::{Misbehaviour, SourceError};
use crate::http::{discard, receive, Body, Deadline, Failure, Place, Response, Wanted};
use crate::remote::Remote;

/// How long a redirect is believed without asking the registry again.
const ROUTE_LIFETIME: Duration = Duration::from_secs(300);
const MAX_REDIRECTS: usize = 3;

/// A blob of a registry.
pub(crate) struct RegistryBlob {
    repository: Arc<Repository>,
    place: Place,
    size: u64,
    route: Mutex<Option<Route>>,
}

/// Where the registry has sent us.
#[derive(Clone)]
struct Route {
    place: Place,
    until: Instant,
}

/// The bytes that one attempt is for.
struct Request<'a> {
    wanted: Wanted,
    buffer: &'a mut [u8],
    deadline: Deadline,
}

impl RegistryBlob {
    pub(crate) fn new(repository: Arc<Repository>, digest: Digest, size: u64) -> Result<Self, SourceError> {
        let place = repository.blob(digest)?;
        Ok(Self { repository, place, size, route: Mutex::new(None) })
    }

    fn attempt(&self, mut request: Request<'_>) -> Result<(), Failure> {
        if let Some(place) = self.known_route() {
            let response = self.get(&place, None, &request)?;
            if !has_expired(&response) {
                return self.follow(place, response, &mut request);
            }
            self.forget_route();
            discard(response);
        }
        let response = self.ask_registry(&request)?;
        match response.status().as_u16() {
            301..=303 | 307 | 308 => {
                let place = next(&self.place, &response)?;
                discard(response);
                let response = self.get(&place, None, &request)?;
                self.follow(place, response, &mut request)
            }
            _ => take(&self.place, response, &mut request),
        }
    }

    /// Asks the registry itself, and once more with new credentials when it refuses.
    fn ask_registry(&self, request: &Request<'_>) -> Result<Response<Body>, Failure> {
        let authorization = self.repository.authorization(request.deadline)?;
        let response = self.get(&self.place, authorization.as_ref(), request)?;
        let is_refused = match response.status().as_u16() {
            401 => true,
            403 => authorization.is_none() && response.headers().contains_key("www-authenticate"),
            _ => false,
        };
        if !is_refused {
            return Ok(response);
        }
        let authorization =
            self.repository.reauthorise(response.headers(), authorization, request.deadline)?;
        discard(response);
        self.get(&self.place, Some(&authorization), request)
    }

    /// Takes the bytes from where a redirect led, or goes on to where that one leads.
    fn follow(
        &self,
        mut place: Place,
        mut response: Response<Body>,
        request: &mut Request<'_>,
    ) -> Result<(), Failure> {
        for _ in 1..MAX_REDIRECTS {
            if !response.status().is_redirection() {
                break;
            }
            place = next(&place, &response)?;
            discard(response);
            response = self.get(&place, None, request)?;
        }
        if response.status().is_redirection() {
            return Err(Failure::Fault(self.place.misbehaved(Misbehaviour::TooManyRedirects)));
        }
        if has_expired(&response) {
            // A new address may be signed with a better clock, so this may pass.
            self.forget_route();
            let status = response.status().as_u16();
            return Err(Failure::Fault(SourceError::Denied { place: place.to_string(), status }));
        }
        let outcome = take(&place, response, request);
        if outcome.is_ok() {
            self.remember_route(place);
        } else {
            self.forget_route();
        }
        outcome
    }

    /// Sends the request. Only the registry itself ever sees an authorization.
    fn get(
        &self,
        place: &Place,
        authorization: Option<&Authorization>,
        request: &Request<'_>,
    ) -> Result<Response<Body>, Failure> {
        let range = request.wanted.header();
        let authorization = authorization.map(Authorization::header);
        let mut headers = vec![("range", range.as_str())];
        headers.extend(authorization.iter().map(|value| ("authorization", value.as_str())));
        self.repository.client.get(place, &headers, request.deadline)
    }

    fn known_route(&self) -> Option<Place> {
        let route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        route.as_ref().filter(|route| route.until > Instant::now()).map(|route| route.place.clone())
    }

    /// A route that is in use keeps its age: a redirect is believed for a while, not for ever.
    fn remember_route(&self, place: Place) {
        let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if !route.as_ref().is_some_and(|route| route.place == place && route.until > now) {
            *route = Some(Route { place, until: now + ROUTE_LIFETIME });
        }
    }

    fn forget_route(&self) {
        *self.route.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Remote for RegistryBlob {
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let client = &self.repository.client;
        let wanted =
            Wanted { offset, length: buffer.len() as u64, total: self.size, skip_limit: client.skip_limit() };
        client
            .attempts()
            .run(&self.place, |deadline| self.attempt(Request { wanted, buffer: &mut *buffer, deadline }))
    }
}

/// Object stores answer so when the signature in an address is too old.
fn has_expired(response: &Response<Body>) -> bool {
    matches!(response.status().as_u16(), 400 | 401 | 403 | 404 | 410)
}

fn next(place: &Place, response: &Response<Body>) -> Result<Place, Failure> {
    let location = response.headers().get("location").and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| Failure::Fault(place.misbehaved(Misbehaviour::Redirect)))?;
    Ok(place.offered(location)?)
}

fn take(place: &Place, response: Response<Body>, request: &mut Request<'_>) -> Result<(), Failure> {
    match response.status().as_u16() {
        200 | 206 => receive(place, response, request.wanted, request.buffer),
        status => Err(Failure::refused(place, status, response.headers())),
    }
}

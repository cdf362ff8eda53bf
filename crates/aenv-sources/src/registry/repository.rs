//! A repository of a registry: how it wants to be asked, remembered for all of its blobs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::challenge::Challenge;
use super::login::{read_login, Login};
use super::token::{Token, TokenKey, TokenStore};
use crate::digest::Digest;
use crate::error::{Misbehaviour, SourceError};
use crate::http::{Deadline, Failure, HeaderMap, HttpClient, Place};

/// What goes into the `Authorization` header of requests to the registry itself.
#[derive(Clone, Debug)]
pub(super) enum Authorization {
    Bearer(TokenKeyed),
    Basic(Login),
}

/// A token, and what it was fetched for.
#[derive(Clone)]
pub(super) struct TokenKeyed {
    key: TokenKey,
    token: Token,
}

impl std::fmt::Debug for TokenKeyed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.token.fmt(formatter)
    }
}

impl Authorization {
    pub(super) fn header(&self) -> String {
        match self {
            Self::Bearer(keyed) => keyed.token.header(),
            Self::Basic(login) => login.basic(),
        }
    }
}

/// A repository, reached with one set of credentials.
pub(crate) struct Repository {
    pub(super) client: Arc<HttpClient>,
    base: Place,
    credentials_path: Option<PathBuf>,
    tokens: Arc<TokenStore>,
    challenge: Mutex<Option<Challenge>>,
}

impl Repository {
    /// `address` is `https://host/v2/name`.
    pub(crate) fn new(
        address: &str,
        credentials_path: Option<PathBuf>,
        client: Arc<HttpClient>,
        tokens: Arc<TokenStore>,
    ) -> Result<Self, SourceError> {
        let base = Place::configured(address)?;
        let name = base.path().strip_prefix("/v2/").unwrap_or_default();
        if name.is_empty() || name.ends_with('/') || base.uri().query().is_some() {
            return Err(SourceError::invalid("the address of a repository is like https://host/v2/name"));
        }
        Ok(Self { client, base, credentials_path, tokens, challenge: Mutex::new(None) })
    }

    pub(super) fn blob(&self, digest: Digest) -> Result<Place, SourceError> {
        self.base.with_path(&format!("{}/blobs/{digest}", self.base.path()))
    }

    /// What the registry is known to want, before it asks.
    pub(super) fn authorization(&self, deadline: Deadline) -> Result<Option<Authorization>, Failure> {
        let challenge = self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone();
        challenge.map(|challenge| self.answer(&challenge, deadline)).transpose()
    }

    /// Answers a refusal. `refused` is what was sent, and is not sent again.
    pub(super) fn reauthorise(
        &self,
        headers: &HeaderMap,
        refused: Option<Authorization>,
        deadline: Deadline,
    ) -> Result<Authorization, Failure> {
        let challenge = Challenge::find(headers)
            .ok_or_else(|| Failure::Fault(self.base.misbehaved(Misbehaviour::Challenge)))?;
        if let Some(Authorization::Bearer(keyed)) = &refused {
            self.tokens.forget(&keyed.key, &keyed.token);
        }
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge.clone());
        self.answer(&challenge, deadline)
    }

    fn answer(&self, challenge: &Challenge, deadline: Deadline) -> Result<Authorization, Failure> {
        let login = self.login()?;
        match challenge {
            Challenge::Basic => login
                .map(Authorization::Basic)
                .ok_or_else(|| SourceError::Denied { place: self.base.to_string(), status: 401 }.into()),
            Challenge::Bearer { realm, service, scope } => {
                let key =
                    TokenKey { realm: realm.clone(), service: service.clone(), scope: scope.clone(), login };
                let token = self.tokens.get(&self.client, &self.base, &key, deadline)?;
                Ok(Authorization::Bearer(TokenKeyed { key, token }))
            }
        }
    }

    fn login(&self) -> Result<Option<Login>, SourceError> {
        let Some(path) = &self.credentials_path else { return Ok(None) };
        let repository = self.base.path().trim_start_matches("/v2/");
        read_login(path, self.base.authority(), repository)
    }
}

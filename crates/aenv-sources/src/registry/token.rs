//! Tokens: fetched once for all who want the same, kept until shortly before they expire.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::login::Login;
use crate::error::{Misbehaviour, SourceError};
use crate::escape::escape;
use crate::http::{Deadline, Failure, HttpClient, Place};

const MAX_ANSWER: u64 = 128 << 10;
const MAX_TOKENS: usize = 1024;
/// What the protocol says when the service does not.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What a token is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct TokenKey {
    pub(super) realm: String,
    pub(super) service: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) login: Option<Login>,
}

/// A token; never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(Arc<str>);

impl Token {
    pub(super) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

struct Kept {
    token: Token,
    until: Instant,
}

type Slot = Arc<Mutex<Option<Kept>>>;

/// The tokens of a process.
#[derive(Default)]
pub(crate) struct TokenStore(Mutex<HashMap<TokenKey, Slot>>);

impl TokenStore {
    /// A token that has not expired. Those who want the same wait for one request.
    pub(super) fn get(
        &self,
        client: &HttpClient,
        base: &Place,
        key: &TokenKey,
        deadline: Deadline,
    ) -> Result<Token, Failure> {
        let slot = self.slot(key);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(kept) = slot.as_ref().filter(|kept| kept.until > now) {
            return Ok(kept.token.clone());
        }
        let (token, lifetime) = fetch(client, base, key, deadline)?;
        *slot = Some(Kept { token: token.clone(), until: now + lifetime.mul_f64(0.9) });
        Ok(token)
    }

    /// Forgets a token that was refused, unless another has taken its place.
    pub(super) fn forget(&self, key: &TokenKey, token: &Token) {
        let slot = self.slot(key);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_some_and(|kept| kept.token == *token) {
            *slot = None;
        }
    }

    fn slot(&self, key: &TokenKey) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_TOKENS {
            // Those in use stay with who uses them; the others are fetched again when wanted.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<i64>,
}

fn fetch(
    client: &HttpClient,
    base: &Place,
    key: &TokenKey,
    deadline: Deadline,
) -> Result<(Token, Duration), Failure> {
    let realm = base.offered(&address(key))?;
    let authorization = key.login.as_ref().map(Login::basic);
    let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    let mut response = client.get(&realm, &headers, deadline)?;
    match response.status().as_u16() {
        200 => {}
        status @ (400 | 401 | 403) => {
            return Err(SourceError::Denied { place: realm.to_string(), status }.into());
        }
        status @ (408 | 429 | 500..=599) => return Err(Failure::overloaded(status, response.headers())),
        status => return Err(Failure::Fault(realm.misbehaved(Misbehaviour::Status(status)))),
    }
    let mut body = Vec::new();
    let mut reader = response.body_mut().as_reader().take(MAX_ANSWER);
    reader.read_to_end(&mut body).map_err(|error| Failure::passing(error.to_string()))?;
    parse(&body).ok_or_else(|| Failure::Fault(realm.misbehaved(Misbehaviour::Token)))
}

fn address(key: &TokenKey) -> String {
    let mut address = key.realm.split('#').next().unwrap_or_default().to_owned();
    let mut separator = if address.contains('?') { '&' } else { '?' };
    let account = key.login.as_ref().map(|login| &login.username);
    for (name, value) in
        [("service", key.service.as_ref()), ("scope", key.scope.as_ref()), ("account", account)]
    {
        if let Some(value) = value {
            address.push(separator);
            address += &format!("{name}={}", escape(value, ""));
            separator = '&';
        }
    }
    address
}

#[cfg(feature = "fuzzing")]
pub(crate) fn parse_token(body: &[u8]) {
    if let Some((token, lifetime)) = parse(body) {
        assert!(!token.0.contains(char::is_whitespace) && lifetime <= LONGEST_LIFETIME);
    }
}

fn parse(body: &[u8]) -> Option<(Token, Duration)> {
    let answer: TokenAnswer = serde_json::from_slice(body).ok()?;
    let is_token = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = [answer.token, answer.access_token].into_iter().flatten().find(is_token)?;
    let seconds =
        answer.expires_in.and_then(|seconds| u64::try_from(seconds).ok()).filter(|&seconds| seconds > 0);
    let lifetime = seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(LONGEST_LIFETIME);
    Some((Token(text.into()), lifetime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_both_kinds_are_understood() {
        for (text, token, seconds) in [
            (r#"{"token":"a","expires_in":300}"#, "a", 300),
            (r#"{"access_token":"b"}"#, "b", 60),
            (r#"{"token":"","access_token":"c","expires_in":-4}"#, "c", 60),
            (r#"{"token":"d","expires_in":99999999999}"#, "d", 24 * 3600),
        ] {
            let expected = (Token(token.into()), Duration::from_secs(seconds));
            assert_eq!(parse(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_token_that_would_break_a_header_is_none() {
        for text in ["", "{}", r#"{"token":"a b"}"#, r#"{"token":"a\r\nx: y"}"#, r#"{"token":7}"#] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_service_is_told_everything_escaped() {
        let key = TokenKey {
            realm: "https://auth/token?x=y#z".to_owned(),
            service: Some("a b".to_owned()),
            scope: Some("repository:n/m:pull".to_owned()),
            login: None,
        };
        let expected = "https://auth/token?x=y&service=a%20b&scope=repository%3An%2Fm%3Apull";
        assert_eq!(address(&key), expected);
    }
}

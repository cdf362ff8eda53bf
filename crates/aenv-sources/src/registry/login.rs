//! Finds name and password in a file like Docker's `config.json`. Programs named there are never run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::Deserialize;

use crate::bounded;
use crate::error::SourceError;

const MAX_FILE: u64 = 1 << 20;

/// A name and its password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub(crate) username: String,
    password: String,
}

impl Login {
    /// The value of an `Authorization` header.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.username, self.password)))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login(..)")
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
}

/// The login for a repository of a host, read anew each time so that a changed file counts.
pub(crate) fn read_login(path: &Path, host: &str, repository: &str) -> Result<Option<Login>, SourceError> {
    let bytes = bounded::read(path, MAX_FILE)?;
    find_login(&bytes, host, repository)
        .map_err(|reason| SourceError::Credentials { path: path.to_owned(), reason: reason.to_owned() })
}

/// The login of the longest key that is the host, or the host and leading parts of the repository's name.
pub(crate) fn find_login(bytes: &[u8], host: &str, repository: &str) -> Result<Option<Login>, &'static str> {
    let file: ConfigFile = serde_json::from_slice(bytes).map_err(|_| "it is not a Docker configuration")?;
    let wanted = format!("{}/{repository}", known_as(host));
    let matches = file.auths.iter().filter(|(key, _)| is_prefix(&normalised(key), &wanted));
    if let Some((_, entry)) = matches.max_by_key(|(key, _)| normalised(key).len()) {
        return entry.login();
    }
    if file.helpers.keys().any(|key| is_prefix(&normalised(key), &wanted)) || file.store.is_some() {
        return Err("it names a credential helper, which is not run; write the credentials into it");
    }
    Ok(None)
}

impl Entry {
    fn login(&self) -> Result<Option<Login>, &'static str> {
        if let (Some(username), Some(password)) = (&self.username, &self.password) {
            return checked(username, password);
        }
        if let Some(auth) = self.auth.as_deref().filter(|auth| !auth.is_empty()) {
            let bytes = BASE64_STANDARD.decode(auth.trim()).map_err(|_| "an 'auth' value is not base64")?;
            let text = String::from_utf8(bytes).map_err(|_| "an 'auth' value is not text")?;
            let (username, password) =
                text.split_once(':').ok_or("an 'auth' value holds no name and password")?;
            return checked(username, password.trim_end_matches('\0'));
        }
        match &self.identitytoken {
            Some(_) => Err("it holds an identity token, which is not supported; write name and password"),
            None => Ok(None),
        }
    }
}

fn checked(username: &str, password: &str) -> Result<Option<Login>, &'static str> {
    if username.contains(':') {
        return Err("a name holds a colon");
    }
    Ok(Some(Login { username: username.to_owned(), password: password.to_owned() }))
}

/// Keys may be addresses, as Docker once wrote them: `https://index.docker.io/v1/`.
fn normalised(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    match key.split_once('/') {
        Some((host, rest)) => format!("{}/{rest}", known_as(host)),
        None => known_as(key),
    }
}

/// Docker Hub has several names for itself.
fn known_as(host: &str) -> String {
    match host.to_ascii_lowercase() {
        host if ["index.docker.io", "registry-1.docker.io"].contains(&host.as_str()) => {
            "docker.io".to_owned()
        }
        host => host,
    }
}

fn is_prefix(key: &str, wanted: &str) -> bool {
    !key.is_empty() && wanted.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn username(text: &str, host: &str, repository: &str) -> Option<String> {
        find_login(text.as_bytes(), host, repository).unwrap().map(|login| login.username)
    }

    #[test]
    fn the_longest_match_of_whole_parts_wins() {
        let text = r#"{"auths":{
            "host":{"username":"all","password":"p"}, "host/team":{"username":"team","password":"p"},
            "host/team/app":{"auth":"YXBwOnA6cQ=="}, "host/te":{"username":"wrong","password":"p"}}}"#;
        assert_eq!(username(text, "host", "team/app"), Some("app".to_owned()));
        assert_eq!(username(text, "host", "team/apple"), Some("team".to_owned()));
        assert_eq!(username(text, "HOST", "other"), Some("all".to_owned()));
        assert_eq!(username(text, "host:5000", "team"), None);
        let login = find_login(text.as_bytes(), "host", "team/app").unwrap().unwrap();
        assert_eq!(login.basic(), "Basic YXBwOnA6cQ==");
    }

    #[test]
    fn old_spellings_of_keys_are_understood() {
        let text = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"}},"HttpHeaders":{"X":"y"}}"#;
        assert_eq!(username(text, "registry-1.docker.io", "library/debian"), Some("a".to_owned()));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for text in [
            "",
            "7",
            r#"{"auths":{"host":{"auth":"?"}}}"#,
            r#"{"auths":{"host":{"auth":"YWI="}}}"#,
            r#"{"auths":{"host":{"identitytoken":"x"}}}"#,
            r#"{"credsStore":"pass"}"#,
            r#"{"credHelpers":{"host":"gcloud"}}"#,
            r#"{"auths":{"host":{"username":"a:b","password":""}}}"#,
        ] {
            assert!(find_login(text.as_bytes(), "host", "name").is_err(), "{text}");
        }
    }

    #[test]
    fn a_login_is_not_printed() {
        let login = Login { username: "name".to_owned(), password: "secret".to_owned() };
        assert!(!format!("{login:?}").contains("secret"));
    }
}

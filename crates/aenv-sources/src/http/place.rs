//! Addresses: those that are configured, and those that a remote offers. Printed without query, because a query may
//! hold a signature.

use std::fmt;

use ureq::http::uri::Scheme;
use ureq::http::Uri;

use crate::error::{Misbehaviour, Prohibition, SourceError};

/// No address that anyone needs is longer.
const MAX_LENGTH: usize = 16 << 10;

/// An absolute `http` or `https` address, and what may be reached from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    uri: Uri,
    /// The configured address that led here is itself unencrypted.
    allows_plain: bool,
    /// The configured address that led here is on this host.
    allows_loopback: bool,
}

impl Place {
    /// An address that the operator configured.
    pub(crate) fn configured(text: &str) -> Result<Self, SourceError> {
        let uri = parse(text)
            .ok_or_else(|| SourceError::invalid("the address is not a plain http or https URL"))?;
        let allows_plain = uri.scheme() == Some(&Scheme::HTTP);
        let allows_loopback = is_loopback(uri.host().unwrap_or_default());
        Ok(Self { uri, allows_plain, allows_loopback })
    }

    /// An address that the remote at this one offers: absolute, or relative to it.
    pub(crate) fn offered(&self, text: &str) -> Result<Self, SourceError> {
        let uri = parse(&self.absolute(text)).ok_or_else(|| self.misbehaved(Misbehaviour::Redirect))?;
        let place = Self { uri, ..*self };
        if place.uri.scheme() == Some(&Scheme::HTTP) && !self.allows_plain {
            return Err(SourceError::Forbidden {
                place: place.to_string(),
                reason: Prohibition::Unencrypted,
            });
        }
        Ok(place)
    }

    /// The same place with another path and query, which must be escaped.
    pub(crate) fn with_path(&self, path: &str) -> Result<Self, SourceError> {
        let base = format!("{}://{}", self.scheme(), self.authority());
        let uri =
            parse(&format!("{base}{path}")).ok_or_else(|| SourceError::invalid("the path is not valid"))?;
        Ok(Self { uri, ..*self })
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Host and port as they stand in the address.
    pub(crate) fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(crate) fn allows_loopback(&self) -> bool {
        self.allows_loopback
    }

    pub(crate) fn misbehaved(&self, fault: Misbehaviour) -> SourceError {
        SourceError::Misbehaved { place: self.to_string(), fault }
    }

    fn scheme(&self) -> &str {
        self.uri.scheme_str().unwrap_or_default()
    }

    fn absolute(&self, text: &str) -> String {
        let text = text.split('#').next().unwrap_or_default();
        let here = format!("{}://{}", self.scheme(), self.authority());
        if text.contains("://") && !text.starts_with(['/', '?']) {
            text.to_owned()
        } else if text.starts_with("//") {
            format!("{}:{text}", self.scheme())
        } else if text.starts_with('/') {
            format!("{here}{text}")
        } else if text.starts_with('?') {
            format!("{here}{}{text}", self.path())
        } else {
            let directory = self.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{here}{directory}/{text}")
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}{}", self.scheme(), self.authority(), self.path())
    }
}

fn parse(text: &str) -> Option<Uri> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let uri: Uri = text.parse().ok()?;
    let is_web = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    let authority = uri.authority()?.as_str();
    // A name and password in an address would end up in messages, and override the credential file.
    (is_web && !authority.contains('@') && !uri.host()?.is_empty()).then_some(uri)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_are_resolved() {
        let base = Place::configured("https://host:5/v2/name/blobs/x?y=z").unwrap();
        for (text, expected) in [
            ("https://other/a?b", "https://other/a?b"),
            ("//other/a", "https://other/a"),
            ("/a/b?c=d#e", "https://host:5/a/b?c=d"),
            ("a", "https://host:5/v2/name/blobs/a"),
            ("?q", "https://host:5/v2/name/blobs/x?q"),
            ("/a?u=http://other/", "https://host:5/a?u=http://other/"),
        ] {
            assert_eq!(base.offered(text).unwrap().uri().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn an_encrypted_source_leads_to_encrypted_places_only() {
        let base = Place::configured("https://host/").unwrap();
        let error = base.offered("http://host/").unwrap_err();
        assert!(matches!(error, SourceError::Forbidden { reason: Prohibition::Unencrypted, .. }), "{error}");
        Place::configured("http://host/").unwrap().offered("http://other/").unwrap();
    }

    #[test]
    fn odd_addresses_are_refused() {
        for text in ["", "/a", "host", "ftp://host/", "file:///etc/passwd", "https://", "https://a:b@host/"] {
            assert!(Place::configured(text).is_err(), "{text}");
        }
        let base = Place::configured("http://host/").unwrap();
        for text in ["ftp://host/", "http://a@host/", "http://host/ b", "gopher://x", "http:///"] {
            assert!(base.offered(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_signature_is_not_printed() {
        let place = Place::configured("https://host/a?X-Amz-Signature=secret").unwrap();
        assert_eq!(place.to_string(), "https://host/a");
        assert!(!place.misbehaved(Misbehaviour::Range).to_string().contains("secret"));
    }
}

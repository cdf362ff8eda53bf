//! Reads `WWW-Authenticate`. The registry writes it, so it is believed in nothing but its form.

use crate::http::HeaderMap;

const MAX_LENGTH: usize = 8 << 10;

/// How a registry wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// With a token from another service.
    Bearer {
        /// The address of the token service.
        realm: String,
        /// What the token service is told.
        service: Option<String>,
        /// What the token is for.
        scope: Option<String>,
    },
    /// With name and password.
    Basic,
}

impl Challenge {
    /// The best challenge among the headers; a token is better than a password.
    pub(crate) fn find(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all("www-authenticate").iter().filter_map(|value| value.to_str().ok());
        let mut found: Vec<_> = texts.flat_map(Self::parse).collect();
        found.sort_by_key(|challenge| *challenge == Self::Basic);
        found.into_iter().next()
    }

    /// All challenges of one header that are understood.
    pub(crate) fn parse(text: &str) -> Vec<Self> {
        if text.len() > MAX_LENGTH {
            return Vec::new();
        }
        let mut found: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
        let mut words = Words { rest: text };
        while let Some(word) = words.next_token() {
            match (words.value(), found.last_mut()) {
                (None, _) => found.push((word, Vec::new())),
                (Some(value), Some((_, parameters))) => parameters.push((word, value)),
                (Some(_), None) => {}
            }
        }
        found.into_iter().filter_map(|(scheme, parameters)| Self::new(scheme, &parameters)).collect()
    }

    fn new(scheme: &str, parameters: &[(&str, String)]) -> Option<Self> {
        let parameter = |name: &str| {
            let found = parameters.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let realm = parameter("realm")?;
        Some(Self::Bearer { realm, service: parameter("service"), scope: parameter("scope") })
    }
}

/// The words of a header, from left to right.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// The next scheme or name of a parameter. What is neither is passed over.
    fn next_token(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches([' ', '\t', ',', '=', '"']);
        let end = self.rest.find([' ', '\t', ',', '=', '"']).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// The value that belongs to the token just read, if it is a parameter.
    fn value(&mut self) -> Option<String> {
        let rest = self.rest.trim_start_matches([' ', '\t']).strip_prefix('=')?;
        self.rest = rest.trim_start_matches([' ', '\t']);
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([' ', '\t', ',']).unwrap_or(self.rest.len());
            let (value, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(value.to_owned());
        };
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &quoted[at + 1..];
                    return Some(value);
                }
                '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
                other => value.push(other),
            }
        }
        self.rest = "";
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) }
    }

    #[test]
    fn values_are_quoted_in_any_order_and_hold_commas() {
        let text = r#"Bearer scope="repository:a/b:pull,push", realm="https://auth/token",service=reg"#;
        let expected = bearer("https://auth/token", Some("reg"), Some("repository:a/b:pull,push"));
        assert_eq!(Challenge::parse(text), [expected]);
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        for text in [
            r#"Basic realm="x", Bearer realm="https://auth""#,
            r#"bearer REALM = "https://auth" , basic realm=x"#,
            r#"Negotiate, Basic, Bearer realm="https://a\uth""#,
        ] {
            let mut headers = HeaderMap::new();
            headers.append("www-authenticate", text.parse().unwrap());
            assert_eq!(Challenge::find(&headers), Some(bearer("https://auth", None, None)), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        for text in
            ["", "Bearer", "Digest realm=\"x\"", "=,\"", "realm=\"x\"", "Bearer realm=\"\"", "Bearer,realm"]
        {
            assert_eq!(Challenge::parse(text), [], "{text}");
        }
        assert_eq!(Challenge::parse(&format!("Basic {}", " ".repeat(MAX_LENGTH))), []);
        assert_eq!(Challenge::parse("Bearer realm=\"open"), [bearer("open", None, None)]);
    }
}

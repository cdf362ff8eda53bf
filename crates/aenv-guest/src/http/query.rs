//! The query part of a URL. Total: any bytes parse to something.

/// Decoded `key=value` pairs in the order of the URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a URL. `+` and `%20` are both spaces: SDKs use either.
    pub(crate) fn of(uri: &hyper::Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default())
    }

    fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// Percent-decoding; a broken escape stays as it is, invalid UTF-8 becomes U+FFFD.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while position < bytes.len() {
        let escaped = match bytes[position] {
            b'%' => bytes.get(position + 1..position + 3).and_then(hex_byte),
            _ => None,
        };
        match (escaped, bytes[position]) {
            (Some(byte), _) => {
                decoded.push(byte);
                position += 2;
            }
            (None, b'+') => decoded.push(b' '),
            (None, byte) => decoded.push(byte),
        }
        position += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match digits {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_spaces_and_escapes_decode() {
        let query = Query::parse("path=a+b%20c%2Fd&path=second&flag&x=1=2&bad=%zz%");
        assert_eq!(query.get("path"), Some("a b c/d"));
        assert_eq!(query.get("flag"), Some(""));
        assert_eq!(query.get("x"), Some("1=2"));
        assert_eq!(query.get("bad"), Some("%zz%"));
        assert_eq!(query.get("absent"), None);
    }

    proptest! {
        #[test]
        fn encoded_values_come_back(value in "(?s).{0,40}") {
            let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let query = Query::parse(&format!("key={encoded}"));
            prop_assert_eq!(query.get("key"), Some(value.as_str()));
        }

        #[test]
        fn any_query_is_survived(query in "(?s).{0,80}") {
            Query::parse(&query);
        }
    }
}

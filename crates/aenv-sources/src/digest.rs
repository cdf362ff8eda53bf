//! The name of content: its SHA-256, written as registries write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const PREFIX: &str = "sha256:";

/// The SHA-256 of a blob. Written as `sha256:` and 64 lower-case digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// The text is not the digest of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 'sha256:' followed by 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidDigest)?.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value_of(pair[0])? << 4 | value_of(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

fn value_of(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_as_written() {
        let text = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
    }

    #[test]
    fn other_spellings_are_refused() {
        let digits = "0f".repeat(32);
        for text in [
            digits.clone(),
            format!("sha512:{digits}"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{digits}0"),
            format!("sha256:{}", digits.to_uppercase()),
            format!("sha256:{}é", &digits[2..]),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest), "{text}");
        }
    }
}

//! The identifier that a layer carries. It tells where a layer came from; it proves nothing about its content.

use std::fmt;
use std::str::FromStr;

use crate::error::Damage;

/// Bytes of the field in a header: 36 characters and a NUL.
pub(super) const FIELD_SIZE: usize = 37;

/// Where the dashes of a UUID stand.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// A UUID; all zeros stand for "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerId(pub [u8; 16]);

impl LayerId {
    /// The absent identifier.
    pub const NONE: Self = Self([0; 16]);

    /// Whether this stands for no layer.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Reads the field of a header, which foreign writers leave empty or write in lower case.
    pub(super) fn from_field(field: &[u8; FIELD_SIZE]) -> Result<Self, Damage> {
        let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
        if text.is_empty() {
            return Ok(Self::NONE);
        }
        std::str::from_utf8(text).map_err(|_| Damage::Identifier)?.parse()
    }

    pub(super) fn to_field(self) -> [u8; FIELD_SIZE] {
        let mut field = [0; FIELD_SIZE];
        field[..36].copy_from_slice(self.to_string().as_bytes());
        field
    }
}

impl FromStr for LayerId {
    type Err = Damage;

    fn from_str(text: &str) -> Result<Self, Damage> {
        let well_formed = text.len() == 36
            && text.bytes().enumerate().all(|(position, byte)| {
                if DASHES.contains(&position) {
                    byte == b'-'
                } else {
                    byte.is_ascii_hexdigit()
                }
            });
        if !well_formed {
            return Err(Damage::Identifier);
        }
        let digits = text.replace('-', "");
        u128::from_str_radix(&digits, 16)
            .map(|value| Self(value.to_be_bytes()))
            .map_err(|_| Damage::Identifier)
    }
}

impl fmt::Display for LayerId {
    /// Upper case, as the reference writes it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02X}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_text_and_bytes_are_inverse_in_any_case() {
        let text = "000000A1-0000-4000-8000-0123456789AB";
        let id: LayerId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(text.to_lowercase().parse(), Ok(id));
        assert_eq!(LayerId::from_field(&id.to_field()), Ok(id));
    }

    #[test]
    fn test_empty_and_zero_fields_are_no_identifier() {
        assert!(LayerId::from_field(&[0; FIELD_SIZE]).unwrap().is_none());
        assert!(LayerId::from_field(&LayerId::NONE.to_field()).unwrap().is_none());
    }

    #[test]
    fn test_what_is_not_a_uuid_is_refused() {
        for text in ["x", "000000A1-0000-4000-8000-0123456789A", "000000A1+0000-4000-8000-0123456789AB"] {
            assert_eq!(text.parse::<LayerId>(), Err(Damage::Identifier), "{text}");
        }
    }
}

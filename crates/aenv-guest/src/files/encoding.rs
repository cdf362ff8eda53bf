//! Which content encoding an answer gets, and which an upload has. Pure.

use super::errors::FileError;

/// How the bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As they are on disk.
    Identity,
    /// RFC 1952.
    Gzip,
}

/// Chooses from `Accept-Encoding`: gzip when the client asks for it by name and likes it no less than plain bytes.
///
/// A range is always a range of the plain bytes.
pub(crate) fn negotiate(accept: Option<&str>, is_range: bool) -> Result<Encoding, FileError> {
    let accept = accept.unwrap_or_default();
    let gzip = weight_of(accept, "gzip").or_else(|| weight_of(accept, "x-gzip"));
    let identity = weight_of(accept, "identity");
    let wants_gzip = gzip.is_some_and(|weight| weight > 0 && identity.is_none_or(|plain| weight >= plain));
    if wants_gzip && !is_range {
        return Ok(Encoding::Gzip);
    }
    if accepts_identity(Some(accept)) {
        return Ok(Encoding::Identity);
    }
    if !is_range && gzip.or_else(|| weight_of(accept, "*")).is_some_and(|weight| weight > 0) {
        return Ok(Encoding::Gzip);
    }
    Err(FileError::NotAcceptable)
}

/// Whether plain bytes are acceptable: unless refused by name, or by a star that nothing overrides.
pub(crate) fn accepts_identity(accept: Option<&str>) -> bool {
    let accept = accept.unwrap_or_default();
    weight_of(accept, "identity").or_else(|| weight_of(accept, "*")) != Some(0)
}

/// The weight in thousandths that the header gives to a coding, when it names it. A broken weight counts as none.
fn weight_of(accept: &str, coding: &str) -> Option<u16> {
    accept.split(',').find_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(coding) {
            return None;
        }
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some(quality.map_or(1000, parse_weight))
    })
}

fn parse_weight(text: &str) -> u16 {
    let weight = text.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0);
    // In 0..=1000 by the filter above.
    (weight * 1000.0).round() as u16
}

/// The encoding of an upload; `identity` may be said or left out.
pub(crate) fn of_upload(content_encoding: Option<&str>) -> Result<Encoding, FileError> {
    match content_encoding.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(Encoding::Identity),
        Some("gzip" | "x-gzip") => Ok(Encoding::Gzip),
        Some(other) => Err(FileError::Invalid(format!(
            "content-encoding {other:?} is not supported; use gzip or identity"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chosen(accept: &str) -> Option<Encoding> {
        negotiate(Some(accept), false).ok()
    }

    #[test]
    fn gzip_needs_to_be_asked_for() {
        assert_eq!(negotiate(None, false).ok(), Some(Encoding::Identity));
        for plain in ["", "identity", "*", "br", "gzip;q=0", "gzip;q=0.2, identity;q=0.8", "gzip;q=nonsense"]
        {
            assert_eq!(chosen(plain), Some(Encoding::Identity), "{plain}");
        }
        for packed in ["gzip", "gzip, deflate", "GZIP;q=0.1", "br, gzip;q=0.5, *;q=0", "identity;q=0, *"] {
            assert_eq!(chosen(packed), Some(Encoding::Gzip), "{packed}");
        }
    }

    #[test]
    fn nothing_acceptable_is_refused() {
        for none in ["identity;q=0", "*;q=0", "br;q=1, *;q=0", "gzip;q=0, identity;q=0"] {
            assert_eq!(chosen(none), None, "{none}");
        }
    }

    #[test]
    fn a_range_is_of_plain_bytes() {
        assert_eq!(negotiate(Some("gzip"), true).ok(), Some(Encoding::Identity));
        assert!(negotiate(Some("gzip, identity;q=0"), true).is_err());
    }

    #[test]
    fn uploads_are_gzip_or_plain() {
        assert_eq!(of_upload(None).ok(), Some(Encoding::Identity));
        assert_eq!(of_upload(Some("Identity")).ok(), Some(Encoding::Identity));
        assert_eq!(of_upload(Some("gzip")).ok(), Some(Encoding::Gzip));
        assert!(of_upload(Some("br")).is_err());
        assert!(of_upload(Some("gzip, gzip")).is_err());
    }

    proptest! {
        #[test]
        fn any_header_is_survived(accept in "(?s).{0,60}", is_range in any::<bool>()) {
            let _ = negotiate(Some(&accept), is_range);
        }
    }
}

//! Percent-encoding as RFC 3986 and the signatures of object stores want it.

/// Escapes everything but unreserved characters and those of `kept`.
pub(crate) fn escape(text: &str, kept: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let letter = char::from(byte);
        if byte.is_ascii_alphanumeric()
            || "-._~".contains(letter)
            || (byte.is_ascii() && kept.contains(letter))
        {
            escaped.push(letter);
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_of_the_unreserved_are_escaped() {
        assert_eq!(escape("a/b c~é+%", "/"), "a/b%20c~%C3%A9%2B%25");
        assert_eq!(escape("a/b", ""), "a%2Fb");
    }
}

//! Header values of the form `value; name=token; name="quoted"`, as form parts carry them. Pure and total.

/// A parsed header value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disposition {
    parameters: Vec<(String, String)>,
}

impl Disposition {
    /// The first parameter of that name.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The file name, with all its directories. The extended form (RFC 5987) wins over the plain one.
    pub(super) fn file_name(&self) -> Option<String> {
        let extended = self.parameter("filename*").and_then(decode_extended);
        extended.or_else(|| self.parameter("filename").map(decode_form_escapes))
    }
}

/// Parses a header value; `None` when a parameter has no name, no value or no end.
pub(super) fn parse(header: &str) -> Option<Disposition> {
    let mut parameters = Vec::new();
    let mut rest = header.split_once(';').map_or("", |(_, rest)| rest);
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || name.contains(';') {
            return None;
        }
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted)?,
            None => parse_token(after),
        };
        parameters.push((name, value));
        rest = match after.trim_start().strip_prefix(';') {
            Some(rest) => rest,
            None if after.trim().is_empty() => "",
            None => return None,
        };
    }
    Some(Disposition { parameters })
}

fn parse_token(text: &str) -> (String, &str) {
    let end = text.find(';').unwrap_or(text.len());
    (text[..end].trim().to_owned(), &text[end..])
}

/// Reads up to the closing quote. Only quote and backslash are unescaped: some clients escape nothing else, and some
/// paths have lone backslashes.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[position + 1..])),
            '\\' => match characters.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, escaped)) => value.push(escaped),
                None => value.push('\\'),
            },
            other => value.push(other),
        }
    }
    None
}

/// Undoes what form senders do to the characters that a quoted name cannot hold: quotes and control characters become
/// `%22`, `%0A` and so on. A percent sign itself is sent as it is, so everything else stays.
fn decode_form_escapes(name: &str) -> String {
    let mut decoded = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(position) = rest.find('%') {
        decoded.push_str(&rest[..position]);
        let escape = rest.get(position + 1..position + 3).and_then(escaped_character);
        decoded.push(escape.unwrap_or('%'));
        rest = &rest[position + if escape.is_some() { 3 } else { 1 }..];
    }
    decoded + rest
}

fn escaped_character(digits: &str) -> Option<char> {
    let is_upper_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_upper_hex)?;
    matches!(byte, 0x22 | 0x01..=0x1f).then_some(char::from(byte))
}

/// `UTF-8''a%20b`; other character sets are not known.
fn decode_extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut pieces = encoded.split('%');
    bytes.extend(pieces.next()?.bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(piece[2..].bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file_name(header: &str) -> Option<String> {
        parse(header)?.file_name()
    }

    #[test]
    fn names_keep_their_directories_and_characters() {
        let cases = [
            (r#"form-data; name="file"; filename="dir/a b.txt""#, "dir/a b.txt"),
            (r#"form-data; filename="häuser; x=y""#, "häuser; x=y"),
            (r#"form-data; filename="a\"b""#, "a\"b"),
            (r#"form-data; filename="a\\b""#, "a\\b"),
            (r#"form-data; filename="a\b""#, "a\\b"),
            (r#"form-data; filename="say %22hi%22%0A""#, "say \"hi\"\n"),
            (r#"form-data; filename="100%25 %2f %7e %é""#, "100%25 %2f %7e %é"),
            (r#"form-data; filename=plain.txt ; name=x"#, "plain.txt"),
            (r#"form-data; filename="x"; filename*=UTF-8''%C3%A9%20y"#, "é y"),
            (r#"form-data; filename="x"; filename*=latin1''%E9"#, "x"),
        ];
        for (header, expected) in cases {
            assert_eq!(file_name(header).as_deref(), Some(expected), "{header}");
        }
    }

    #[test]
    fn nul_is_never_decoded() {
        assert_eq!(file_name(r#"form-data; filename="a%00b""#).as_deref(), Some("a%00b"));
    }

    #[test]
    fn malformed_values_are_refused() {
        for header in [r#"x; filename="open"#, "x; filename", "x; =y", r#"x; a="b" c"#, "x; a; b=c"] {
            assert_eq!(parse(header), None, "{header}");
        }
        assert_eq!(parse("form-data;"), Some(Disposition { parameters: vec![] }));
    }

    proptest! {
        #[test]
        fn what_a_form_sender_writes_comes_back(name in "[^\\x00%]{0,40}") {
            let escaped: String = name.chars().map(|character| match character {
                '"' => "%22".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\u{1}'..='\u{1f}' => format!("%{:02X}", character as u32),
                other => other.to_string(),
            }).collect();
            let header = format!("form-data; name=\"file\"; filename=\"{escaped}\"");
            prop_assert_eq!(file_name(&header), Some(name));
        }

        #[test]
        fn any_header_is_survived(header in "(?s).{0,80}") {
            if let Some(disposition) = parse(&header) {
                let _ = disposition.file_name();
            }
        }
    }
}

//! How a download presents itself: `Content-Type` by name or first bytes, `Content-Disposition` with the file's name. Pure.

use std::path::Path;

/// Enough of a file to tell text from binary.
const SNIFF_BYTES_MAX: usize = 512;
const BINARY: &str = "application/octet-stream";
const TEXT: &str = "text/plain; charset=utf-8";

/// Guesses the media type from the name, else from the first bytes.
pub(crate) fn content_type(path: &Path, first_bytes: &[u8]) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    extension.as_deref().and_then(by_extension).unwrap_or_else(|| sniff(first_bytes))
}

fn by_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "avif" => "image/avif",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "gif" => "image/gif",
        "gz" => "application/gzip",
        "htm" | "html" => "text/html; charset=utf-8",
        "jpeg" | "jpg" => "image/jpeg",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "md" => "text/markdown; charset=utf-8",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "ogg" => "audio/ogg",
        "otf" => "font/otf",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "tar" => "application/x-tar",
        "ttf" => "font/ttf",
        "txt" => TEXT,
        "wasm" => "application/wasm",
        "wav" => "audio/wav",
        "webm" => "video/webm",
        "webp" => "image/webp",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "xml" => "text/xml; charset=utf-8",
        "zip" => "application/zip",
        _ => return None,
    })
}

fn sniff(first_bytes: &[u8]) -> &'static str {
    const MAGIC: [(&[u8], &str); 8] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"\x1f\x8b\x08", "application/x-gzip"),
        (b"PK\x03\x04", "application/zip"),
        (b"\0asm", "application/wasm"),
    ];
    let head = &first_bytes[..first_bytes.len().min(SNIFF_BYTES_MAX)];
    match MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        Some((_, media_type)) => media_type,
        None if is_text(head) => TEXT,
        None => BINARY,
    }
}

fn is_text(head: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        // A character that the end of the sample cuts in two is no sign of binary data.
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && !head.iter().any(|byte| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f))
}

/// `inline; filename=…`, quoted or encoded as the name needs it.
pub(crate) fn disposition(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.is_empty() && name.bytes().all(is_token) {
        return format!("inline; filename={name}");
    }
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return format!("inline; filename=\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let encoded: String = name.bytes().map(encode_byte).collect();
    format!("inline; filename*=utf-8''{encoded}")
}

fn encode_byte(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_decides_before_the_bytes() {
        assert_eq!(content_type(Path::new("/a.JSON"), b"\x89PNG\r\n\x1a\n"), "application/json");
        assert_eq!(content_type(Path::new("/a"), b"\x89PNG\r\n\x1a\nrest"), "image/png");
        assert_eq!(content_type(Path::new("/a.unknown"), "häuser".as_bytes()), TEXT);
        assert_eq!(content_type(Path::new("/a"), b"a\0b"), BINARY);
        assert_eq!(content_type(Path::new("/a"), b"\xff\xfe\xfd"), BINARY);
        assert_eq!(content_type(Path::new("/a"), b""), TEXT);
    }

    #[test]
    fn a_cut_character_is_still_text() {
        let mut sample = vec![b'a'; SNIFF_BYTES_MAX - 1];
        sample.extend("é".as_bytes());
        assert_eq!(content_type(Path::new("/a"), &sample), TEXT);
    }

    #[test]
    fn names_are_quoted_or_encoded_as_needed() {
        assert_eq!(disposition(Path::new("/x/a.txt")), "inline; filename=a.txt");
        assert_eq!(disposition(Path::new("/a \"b\"")), r#"inline; filename="a \"b\"""#);
        assert_eq!(disposition(Path::new("/é")), "inline; filename*=utf-8''%C3%A9");
        assert_eq!(disposition(Path::new("/a\r\nX: y")), "inline; filename*=utf-8''a%0D%0AX%3A%20y");
    }

    proptest! {
        #[test]
        fn any_name_is_a_valid_header(name in "(?s).{1,40}") {
            let header = disposition(&Path::new("/").join(name.trim_start_matches('/')));
            prop_assert!(HeaderValue::from_str(&header).is_ok());
        }
    }
}

//! `multipart/form-data` (RFC 7578) as a stream: parts of any size with constant memory. Total: any bytes give parts or
//! an error. Knows nothing about files.

use std::io::{self, Read, Write};

use memchr::memmem::Finder;

use super::disposition::{self, Disposition};
use super::window::Window;

/// RFC 2046's own limit.
const BOUNDARY_BYTES_MAX: usize = 70;
/// All header lines of one part.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Why a form could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum MultipartError {
    /// The bytes are no form.
    #[error("multipart body is malformed: {0}")]
    Malformed(&'static str),
    /// The body itself failed.
    #[error("{0}")]
    Source(io::Error),
    /// What takes the part's bytes failed.
    #[error("{0}")]
    Sink(io::Error),
}

/// Reads the boundary from a `multipart/form-data` content type.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let boundary = disposition::parse(content_type)?.parameter("boundary")?.to_owned();
    let is_sane = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.is_ascii();
    is_sane.then_some(boundary)
}

/// A form in the making. Call `next_part`, then `copy_part`, in turns.
pub(super) struct Multipart<R> {
    window: Window<R>,
    delimiter: Finder<'static>,
}

impl<R: Read> Multipart<R> {
    /// A form whose parts are divided by `boundary`.
    pub(super) fn new(source: R, boundary: &str) -> Self {
        // The line break before a delimiter belongs to it; the first delimiter may lack one.
        Self::over(Window::new(source, b"\r\n"), boundary)
    }

    fn over(window: Window<R>, boundary: &str) -> Self {
        Self { window, delimiter: Finder::new(&format!("\r\n--{boundary}")).into_owned() }
    }

    /// Skips what is before the first part. Must be called once, first.
    pub(super) fn skip_preamble(&mut self) -> Result<(), MultipartError> {
        self.copy_part(&mut io::sink())
    }

    /// Reads the head of the next part; `None` after the last one.
    pub(super) fn next_part(&mut self) -> Result<Option<Disposition>, MultipartError> {
        self.require(2)?;
        if self.window.bytes().starts_with(b"--") {
            return Ok(None);
        }
        self.skip_padding()?;
        let end = self.find_head_end()?;
        let head = &self.window.bytes()[2..end.max(2)];
        let disposition = parse_head(head)?;
        self.window.consume(end + 4);
        Ok(Some(disposition))
    }

    /// Copies the bytes of the part to `sink`, up to the delimiter and over it.
    pub(super) fn copy_part(&mut self, sink: &mut dyn Write) -> Result<(), MultipartError> {
        let needle_length = self.delimiter.needle().len();
        let mut searched = 0;
        loop {
            let found = self.delimiter.find(&self.window.bytes()[searched..]);
            if let Some(position) = found.map(|position| searched + position) {
                write_all(sink, &self.window.bytes()[..position])?;
                self.window.consume(position + needle_length);
                return Ok(());
            }
            // The end of the window may be the start of a delimiter.
            searched = (self.window.bytes().len() + 1).saturating_sub(needle_length);
            if self.window.is_full() {
                write_all(sink, &self.window.bytes()[..searched])?;
                self.window.consume(searched);
                searched = 0;
            }
            if !self.window.fill().map_err(MultipartError::Source)? {
                return Err(MultipartError::Malformed("it ends inside a part"));
            }
        }
    }

    /// A delimiter may be followed by blanks, then comes the end of its line.
    fn skip_padding(&mut self) -> Result<(), MultipartError> {
        while matches!(self.window.bytes().first(), Some(b' ' | b'\t')) {
            self.window.consume(1);
            self.require(2)?;
        }
        if self.window.bytes().starts_with(b"\r\n") {
            Ok(())
        } else {
            Err(MultipartError::Malformed("a delimiter is not alone on its line"))
        }
    }

    /// Where the empty line after the head starts, counted from the line break of the delimiter's line.
    fn find_head_end(&mut self) -> Result<usize, MultipartError> {
        loop {
            let bytes = self.window.bytes();
            let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
            if let Some(end) = memchr::memmem::find(head, b"\r\n\r\n") {
                return Ok(end);
            }
            if head.len() == HEAD_BYTES_MAX {
                return Err(MultipartError::Malformed("the head of a part is too long"));
            }
            self.require(bytes.len() + 1)?;
        }
    }

    fn require(&mut self, length: usize) -> Result<(), MultipartError> {
        while self.window.bytes().len() < length {
            if self.window.is_full() || !self.window.fill().map_err(MultipartError::Source)? {
                return Err(MultipartError::Malformed("it ends before its closing delimiter"));
            }
        }
        Ok(())
    }
}

fn write_all(sink: &mut dyn Write, bytes: &[u8]) -> Result<(), MultipartError> {
    if bytes.is_empty() {
        return Ok(());
    }
    sink.write_all(bytes).map_err(MultipartError::Sink)
}

fn parse_head(head: &[u8]) -> Result<Disposition, MultipartError> {
    let head = std::str::from_utf8(head)
        .map_err(|_| MultipartError::Malformed("the head of a part is not UTF-8"))?;
    let value = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    value
        .and_then(disposition::parse)
        .ok_or(MultipartError::Malformed("a part has no usable content-disposition"))
}

/// Any bytes are a form or an error, and no part has more bytes than the form.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_form(input: &[u8]) {
    let (content_type, body) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let content_type = String::from_utf8_lossy(content_type);
    let boundary = boundary(&content_type).unwrap_or_else(|| "b".to_owned());
    let mut form = Multipart::new(body, &boundary);
    if form.skip_preamble().is_err() {
        return;
    }
    let mut total = 0;
    while let Ok(Some(disposition)) = form.next_part() {
        let _ = disposition.file_name();
        let mut part = Vec::new();
        if form.copy_part(&mut part).is_err() {
            break;
        }
        total += part.len();
        assert!(total <= input.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Parts = Vec<(String, Vec<u8>)>;

    fn read_form(body: &[u8], capacity: usize) -> Result<Parts, MultipartError> {
        let mut form = Multipart::over(Window::with_capacity(body, b"\r\n", capacity), "XX");
        form.skip_preamble()?;
        let mut parts = Parts::new();
        while let Some(head) = form.next_part()? {
            let mut bytes = Vec::new();
            form.copy_part(&mut bytes)?;
            parts.push((head.parameter("name").unwrap_or_default().to_owned(), bytes));
        }
        Ok(parts)
    }

    fn write_form(parts: &Parts) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, bytes) in parts {
            body.extend(
                format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\nX: y\r\n\r\n").bytes(),
            );
            body.extend(bytes);
            body.extend(b"\r\n");
        }
        body.extend(b"--XX--\r\n");
        body
    }

    #[test]
    fn preamble_padding_and_epilogue_are_skipped() {
        let body = b"hello\r\n--XX \t\r\ncontent-disposition:form-data;name=a\r\n\r\nbytes\r\n--XX--\r\nbye";
        let parts = read_form(body, 4096).expect("valid");
        assert_eq!(parts, [("a".to_owned(), b"bytes".to_vec())]);
    }

    #[test]
    fn broken_forms_are_errors() {
        for body in [
            b"".as_slice(),
            b"no delimiter",
            b"--XX",
            b"--XXjunk\r\n\r\n",
            b"--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nbytes without end",
            b"--XX\r\nContent-Type: text/plain\r\n\r\nno disposition\r\n--XX--",
            b"--XX\r\n\r\nno head\r\n--XX--",
            b"--XX\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\nx\r\n--XX--",
        ] {
            let outcome = read_form(body, 4096);
            assert!(
                matches!(outcome, Err(MultipartError::Malformed(_))),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn an_endless_head_is_refused() {
        let mut body = b"--XX\r\nContent-Disposition: ".to_vec();
        body.resize(HEAD_BYTES_MAX * 4, b'a');
        assert!(matches!(read_form(&body, HEAD_BYTES_MAX * 2), Err(MultipartError::Malformed(_))));
    }

    #[test]
    fn a_small_part_is_written_at_once() {
        struct Counting(usize);
        impl Write for Counting {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        struct Dripping<'a>(&'a [u8]);
        impl Read for Dripping<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = buffer.len().min(1);
                self.0.read(&mut buffer[..length])
            }
        }
        let body = write_form(&vec![("a".to_owned(), vec![b'z'; 1000])]);
        let mut form = Multipart::new(Dripping(&body), "XX");
        form.skip_preamble().expect("a form");
        form.next_part().expect("a part").expect("the first");
        let mut sink = Counting(0);
        form.copy_part(&mut sink).expect("copied");
        assert_eq!(sink.0, 1);
    }

    #[test]
    fn boundaries_come_from_the_content_type() {
        assert_eq!(boundary("multipart/form-data; boundary=abc").as_deref(), Some("abc"));
        assert_eq!(boundary("multipart/form-data; charset=x; Boundary=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(boundary("multipart/form-data"), None);
        assert_eq!(boundary(&format!("multipart/form-data; boundary={}", "x".repeat(71))), None);
    }

    proptest! {
        #[test]
        fn forms_come_back_whatever_the_window(
            parts in proptest::collection::vec(("[a-z]{0,8}", "[-\r\nX a]{0,300}"), 0..5),
            capacity in 200_usize..400,
        ) {
            let parts: Parts = parts.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
            prop_assume!(parts.iter().all(|(_, bytes)| memchr::memmem::find(bytes, b"\r\n--XX").is_none()));
            let body = write_form(&parts);
            prop_assert_eq!(read_form(&body, capacity).expect("valid"), parts);
        }

        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = read_form(&body, 256);
        }

        #[test]
        fn any_form_like_text_is_survived(body in "(--XX|\r\n|[-:;=\"a-z ]|Content-Disposition: form-data){0,60}") {
            let _ = read_form(body.as_bytes(), 256);
        }
    }
}

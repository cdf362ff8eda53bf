//! `GET /files`: one file, whole or in part, plain or compressed.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, LAST_MODIFIED, RANGE, VARY,
};
use hyper::StatusCode;
use tokio::sync::Semaphore;

use super::body::{self, Packed, Packer, Plain};
use super::conditions::{self, Selection, Verdict};
use super::encoding::{self, Encoding};
use super::errors::FileError;
use super::{blocking, media, open};
use crate::http::{self, Body, Response};

/// How much is read before the answer begins: small files need no second trip to a worker.
const PEEK_BYTES: u64 = 64 << 10;
/// Clients that read slowly hold a file and a chunk each.
const DOWNLOADS_MAX: usize = 256;

/// A compressor holds some 300 KiB.
const COMPRESSIONS_MAX: usize = 16;

static DOWNLOADS: Semaphore = Semaphore::const_new(DOWNLOADS_MAX);
static COMPRESSIONS: Semaphore = Semaphore::const_new(COMPRESSIONS_MAX);

/// Sends a file.
pub(crate) async fn get(path: PathBuf, headers: &HeaderMap) -> Result<Response, FileError> {
    let accept = headers.get(ACCEPT_ENCODING).map(|value| value.to_str().unwrap_or_default());
    let encoding = encoding::negotiate(accept, headers.contains_key(RANGE))?;
    let file = blocking::run(move || OpenedFile::open(path)).await??;
    let mut response = match conditions::judge(headers, file.modified) {
        Verdict::Proceed => file.answer(headers, encoding, accept).await?,
        Verdict::NotModified => file.describe(http::status(StatusCode::NOT_MODIFIED)),
        Verdict::PreconditionFailed => http::error(
            StatusCode::PRECONDITION_FAILED,
            "the file does not meet the condition of the request",
        ),
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// A file and its first bytes.
struct OpenedFile {
    path: PathBuf,
    file: File,
    head: Bytes,
    /// `None` when the kernel does not know it, as for many files in `/proc`.
    size: Option<u64>,
    modified: SystemTime,
}

impl OpenedFile {
    fn open(path: PathBuf) -> Result<Self, FileError> {
        let (file, metadata) = open::for_reading(&path)?;
        let (head, is_whole) = peek(&file).map_err(|error| FileError::from_io(&error, &path))?;
        let length = head.len() as u64;
        let size = if is_whole { Some(length) } else { Some(metadata.len()).filter(|size| *size > length) };
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        Ok(Self { path, file, head: head.into(), size, modified })
    }

    fn is_in_memory(&self) -> bool {
        self.size == Some(self.head.len() as u64)
    }

    async fn answer(
        self,
        headers: &HeaderMap,
        encoding: Encoding,
        accept: Option<&str>,
    ) -> Result<Response, FileError> {
        let selection = match self.size {
            Some(size) if encoding == Encoding::Identity => conditions::select(headers, self.modified, size),
            _ => Selection::Whole,
        };
        match selection {
            Selection::Whole if encoding == Encoding::Gzip => self.packed(accept).await,
            Selection::Whole => self.whole().await,
            Selection::Part { start, length } => self.part(start, length).await,
            Selection::Unsatisfiable => Ok(self.unsatisfiable()),
        }
    }

    /// Compressing what does not shrink only costs time, and a compressor costs memory: unless the client accepts
    /// nothing else, plain bytes are the answer to both.
    async fn packed(self, accept: Option<&str>) -> Result<Response, FileError> {
        let is_required = !encoding::accepts_identity(accept);
        if self.head.is_empty() && !is_required {
            return self.whole().await;
        }
        if !is_required && !self.is_in_memory() && COMPRESSIONS.available_permits() == 0 {
            return self.whole().await;
        }
        let slot = blocking::transfer_slot(&COMPRESSIONS).await?;
        let (head, packer) = (self.head.clone(), Packer::new());
        let sample = blocking::run(move || packer.pack(&head)).await?;
        let sample = sample.map_err(|error| FileError::from_io(&error, &self.path))?;
        if self.is_in_memory() {
            return Ok(self.describe_packed(http::full(sample)));
        }
        if !is_required && sample.len() >= self.head.len() / 10 * 9 {
            return self.whole().await;
        }
        let mut response = self.describe_packed(http::empty());
        let plain = Plain::whole(self.head, self.file, self.size);
        *response.body_mut() = body::stream(Packed::new(plain, Packer::new()), slot);
        Ok(response)
    }

    fn describe_packed(&self, body: Body) -> Response {
        let mut response = self.describe(Response::new(body));
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    }

    async fn whole(self) -> Result<Response, FileError> {
        let mut response = self.describe(Response::new(http::empty()));
        if let Some(size) = self.size {
            set(&mut response, CONTENT_LENGTH, &size.to_string());
            response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        *response.body_mut() = if self.is_in_memory() {
            http::full(self.head)
        } else {
            let slot = blocking::transfer_slot(&DOWNLOADS).await?;
            body::stream(Plain::whole(self.head, self.file, self.size), slot)
        };
        Ok(response)
    }

    async fn part(self, start: u64, length: u64) -> Result<Response, FileError> {
        let mut response = self.describe(http::status(StatusCode::PARTIAL_CONTENT));
        let size = self.size.unwrap_or_default();
        set(&mut response, CONTENT_RANGE, &format!("bytes {start}-{}/{size}", start + length - 1));
        set(&mut response, CONTENT_LENGTH, &length.to_string());
        response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        *response.body_mut() = self.part_body(start, length).await?;
        Ok(response)
    }

    async fn part_body(self, start: u64, length: u64) -> Result<Body, FileError> {
        if start + length <= self.head.len() as u64 {
            // Inside the head, both numbers are small.
            let range = start as usize..(start + length) as usize;
            return Ok(http::full(self.head.slice(range)));
        }
        let slot = blocking::transfer_slot(&DOWNLOADS).await?;
        let part =
            Plain::part(self.file, start, length).map_err(|error| FileError::from_io(&error, &self.path))?;
        Ok(body::stream(part, slot))
    }

    fn unsatisfiable(&self) -> Response {
        let message = "the file has no byte in the requested range";
        let mut response = http::error(StatusCode::RANGE_NOT_SATISFIABLE, message);
        set(&mut response, CONTENT_RANGE, &format!("bytes */{}", self.size.unwrap_or_default()));
        response
    }

    fn describe(&self, mut response: Response) -> Response {
        set(&mut response, CONTENT_TYPE, media::content_type(&self.path, &self.head));
        set(&mut response, CONTENT_DISPOSITION, &media::disposition(&self.path));
        set(&mut response, LAST_MODIFIED, &last_modified(self.modified));
        response
    }
}

/// Reads the first bytes, and says whether they are all.
fn peek(file: &File) -> io::Result<(Vec<u8>, bool)> {
    let mut head = Vec::with_capacity(4096);
    file.take(PEEK_BYTES).read_to_end(&mut head)?;
    let is_whole = (head.len() as u64) < PEEK_BYTES;
    Ok((head, is_whole))
}

/// HTTP dates end with the year 9999, file systems do not.
fn last_modified(modified: SystemTime) -> String {
    const LATEST_SECONDS: u64 = 253_402_300_799;
    let seconds = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().min(LATEST_SECONDS);
    httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    // Numbers, dates and encoded names: always valid. A header that is not would be worse than none.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_lie_about_their_size_are_measured() {
        let opened = OpenedFile::open("/proc/self/status".into()).expect("opened");
        assert!(opened.is_in_memory() && !opened.head.is_empty());
    }

    #[test]
    fn sparse_files_are_not_read_to_be_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sparse");
        File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("created");
        let opened = OpenedFile::open(path).expect("opened");
        assert_eq!((opened.size, opened.head.len()), (Some(1 << 40), PEEK_BYTES as usize));
    }

    #[test]
    fn dates_outside_the_calendar_are_clamped() {
        let late = UNIX_EPOCH + std::time::Duration::from_secs(1 << 50);
        assert_eq!(last_modified(late), "Fri, 31 Dec 9999 23:59:59 GMT");
        let early = UNIX_EPOCH - std::time::Duration::from_secs(5);
        assert_eq!(last_modified(early), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}

//! `POST /files`: files of any size, from a form or as plain bytes, to disk with constant memory. Each upload has a
//! thread of its own that pulls the body through decoder and parser; the async side only feeds it.

mod disposition;
mod multipart;
mod reader;
mod store;
mod window;

use std::io::{self, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use hyper::header::{HeaderMap, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::StatusCode;
use tokio::sync::Semaphore;

use self::multipart::{Multipart, MultipartError};
use self::reader::ChunkReader;
use self::store::{Destination, Store};
use self::window::Window;
use super::encoding::{self, Encoding};
use super::errors::FileError;
use super::written::Written;
use super::{blocking, metadata};
use crate::http::{self, Query, Request, Response};
use crate::state::Daemon;
use crate::users::User;

#[cfg(feature = "fuzzing")]
pub(crate) use self::multipart::fuzz_form;

/// Each has a thread, a window, and a few chunks that wait.
const UPLOADS_MAX: usize = 32;

pub(crate) static UPLOADS: Semaphore = Semaphore::const_new(UPLOADS_MAX);

/// Receives one upload.
pub(crate) async fn post(
    daemon: &Daemon,
    user: User,
    query: &Query,
    request: Request,
) -> Result<Response, FileError> {
    let (head, body) = request.into_parts();
    let upload = Upload {
        form: Form::of(&head.headers)?,
        encoding: encoding::of_upload(text(&head.headers, CONTENT_ENCODING.as_str()))?,
        destination: Destination {
            user,
            default_workdir: daemon.default_workdir(),
            path: query.get("path").map(str::to_owned),
            metadata: metadata::of_headers(&head.headers)?,
        },
    };
    let slot = blocking::transfer_slot(&UPLOADS).await?;
    let (sender, reader) = reader::bridge();
    let (written, ()) =
        tokio::join!(blocking::run_long(slot, move || upload.receive(reader)), sender.feed(body));
    Ok(http::json(StatusCode::OK, &written??))
}

/// How the body holds its files.
#[derive(Debug)]
enum Form {
    /// Parts between boundaries.
    Multipart(String),
    /// The body is the file.
    Bytes,
}

impl Form {
    fn of(headers: &HeaderMap) -> Result<Self, FileError> {
        let content_type = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "multipart/form-data" => multipart::boundary(content_type)
                .map(Self::Multipart)
                .ok_or_else(|| FileError::Invalid("multipart/form-data needs a boundary".into())),
            "application/octet-stream" => Ok(Self::Bytes),
            other => Err(FileError::Invalid(format!(
                "content-type {other:?} is not supported; use multipart/form-data or application/octet-stream"
            ))),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

struct Upload {
    form: Form,
    encoding: Encoding,
    destination: Destination,
}

impl Upload {
    /// Pulls the whole body. Runs on the upload's own thread.
    fn receive(self, body: ChunkReader) -> Result<Vec<Written>, FileError> {
        let source: Box<dyn Read> = match self.encoding {
            Encoding::Identity => Box::new(body),
            Encoding::Gzip => Box::new(MultiGzDecoder::new(body)),
        };
        let mut store = Store::new(self.destination);
        match &self.form {
            Form::Multipart(boundary) => receive_form(Multipart::new(source, boundary), &mut store)?,
            Form::Bytes => receive_bytes(Window::new(source, b""), &mut store)?,
        }
        Ok(store.into_written())
    }
}

fn receive_form(mut form: Multipart<impl Read>, store: &mut Store) -> Result<(), FileError> {
    form.skip_preamble().map_err(|error| form_error(error, Path::new("")))?;
    while let Some(part) = form.next_part().map_err(|error| form_error(error, Path::new("")))? {
        if part.parameter("name") != Some("file") {
            form.copy_part(&mut io::sink()).map_err(|error| form_error(error, Path::new("")))?;
            continue;
        }
        let (mut file, target) = store.create(part.file_name().as_deref())?;
        form.copy_part(&mut file).map_err(|error| form_error(error, &target))?;
        store.finish(&target);
    }
    Ok(())
}

fn receive_bytes(mut window: Window<impl Read>, store: &mut Store) -> Result<(), FileError> {
    let (mut file, target) = store.create(None)?;
    loop {
        let has_more = window.fill_up().map_err(|error| source_error(&error))?;
        file.write_all(window.bytes()).map_err(|error| FileError::from_io(&error, &target))?;
        window.consume(window.bytes().len());
        if !has_more {
            store.finish(&target);
            return Ok(());
        }
    }
}

fn form_error(error: MultipartError, target: &Path) -> FileError {
    match error {
        MultipartError::Malformed(_) => FileError::Invalid(error.to_string()),
        MultipartError::Source(error) => source_error(&error),
        MultipartError::Sink(error) => FileError::from_io(&error, target),
    }
}

/// The bytes that the client sends, or stops sending, are always its own responsibility.
fn source_error(error: &io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::TimedOut => FileError::Idle,
        _ => FileError::Invalid(format!("upload could not be read: {error}")),
    }
}

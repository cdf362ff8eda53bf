//! Runs the daemon: runtime, listener, routes, authorisation. What a route does is the business of its module.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;

use crate::http::{self, Request, Response};
use crate::keeper::{Inheritance, Word};
use crate::options::DaemonOptions;
use crate::state::Daemon;
use crate::{api, connect, files, filesystem, forward, memory, process};

/// A thousand streams need some thousand descriptors.
pub(crate) const OPEN_FILES_MAX: u64 = 65_536;

/// The exact text is part of the contract.
pub(crate) const UNAUTHORISED: &str =
    "unauthorized access, please provide a valid access token or method signing if supported";

/// Runs until the process ends; `false` says that it could not.
pub(crate) fn run(options: DaemonOptions, inheritance: Inheritance) -> bool {
    // What processes create is readable by others, whatever the parent's mask was.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    raise_open_files_limit(OPEN_FILES_MAX);
    memory::prepare_heap();
    // One thread: the daemon lives in every clone's memory, and its work is waiting.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        .thread_stack_size(256 << 10)
        .build();
    let outcome = runtime.and_then(|runtime| runtime.block_on(serve(options, inheritance)));
    if let Err(error) = &outcome {
        eprintln!("aenv-guest: daemon: {error}");
    }
    outcome.is_ok()
}

/// Processes get the customary limit back.
pub(crate) fn raise_open_files_limit(limit: u64) {
    use nix::sys::resource::{getrlimit, setrlimit, Resource};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Failing leaves us with fewer streams, and says so when they run out.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(limit), hard);
    }
}

async fn serve(mut options: DaemonOptions, inheritance: Inheritance) -> std::io::Result<()> {
    let Inheritance { listener, line, store, settings, records } = inheritance;
    let listener = match listener {
        Some(listener) => TcpListener::from_std(listener)?,
        None => TcpListener::bind(SocketAddr::new(options.listen, options.port)).await?,
    };
    let address = listener.local_addr()?;
    options.port = address.port();
    let daemon = Arc::new(Daemon::new(options, line, store, settings));
    api::freeze::thaw_after_predecessor(&daemon);
    process::resume(&daemon, records);
    tokio::spawn(forward::run(Arc::clone(&daemon)));
    if !daemon.line.say(Word::Ready) {
        println!("aenv-guest: ready on {address}");
    }
    let trimming = Arc::clone(&daemon);
    tokio::spawn(async move { trimming.memory.run().await });
    let on_close = {
        let daemon = Arc::clone(&daemon);
        move || daemon.memory.notice()
    };
    http::server::serve(listener, move |request| answer(Arc::clone(&daemon), request), on_close).await;
    Ok(())
}

async fn answer(daemon: Arc<Daemon>, request: Request) -> Response {
    let is_cross_origin = request.headers().contains_key(ORIGIN);
    let mut response = if request.method() == Method::OPTIONS {
        http::status(StatusCode::NO_CONTENT)
    } else if is_authorised(&daemon, &request) {
        route(daemon, request).await
    } else {
        http::error(StatusCode::UNAUTHORIZED, UNAUTHORISED)
    };
    if is_cross_origin {
        allow_all_origins(response.headers_mut());
    }
    response
}

async fn route(daemon: Arc<Daemon>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match (&method, path.as_str()) {
        (_, "/files" | "/files/compose") => files::handle(daemon, request).await,
        (&Method::GET, "/health") => http::status(StatusCode::NO_CONTENT),
        (&Method::GET, "/metrics") => api::metrics::get(&daemon),
        (&Method::GET, "/envs") => http::json(StatusCode::OK, &daemon.global_environment()),
        (&Method::POST, "/init") => api::init::post(&daemon, request).await,
        (&Method::GET, "/memory") => api::memory::get(),
        (&Method::POST, "/shutdown") => api::shutdown::post(&daemon),
        (&Method::POST, "/freeze") => api::freeze::freeze(&daemon, &request).await,
        (&Method::POST, "/unfreeze") => api::freeze::unfreeze(&daemon),
        (&Method::POST, "/fsfreeze") => api::freeze::freeze_disk(&daemon, &request).await,
        (&Method::POST, "/fsthaw") => api::freeze::thaw_disk(&daemon),
        (_, "/health" | "/metrics" | "/envs" | "/memory" | "/init" | "/shutdown") => {
            method_not_allowed(&method, &path)
        }
        (_, "/freeze" | "/unfreeze" | "/fsfreeze" | "/fsthaw") => method_not_allowed(&method, &path),
        _ => route_service(daemon, request, &method, &path).await,
    }
}

async fn route_service(daemon: Arc<Daemon>, request: Request, method: &Method, path: &str) -> Response {
    let service = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match service {
        Some(("process.Process" | "filesystem.Filesystem", _)) if method != Method::POST => {
            method_not_allowed(method, path)
        }
        Some(("process.Process" | "filesystem.Filesystem", _))
            if !connect::is_known_type(request.headers()) =>
        {
            let message = "content type must be application/json or application/connect+json";
            http::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        }
        Some(("process.Process", name)) => process::handle(daemon, name, request).await,
        Some(("filesystem.Filesystem", name)) => filesystem::handle(daemon, name, request).await,
        _ => http::error(StatusCode::NOT_FOUND, format!("no route for {method} {path}")),
    }
}

fn method_not_allowed(method: &Method, path: &str) -> Response {
    http::error(StatusCode::METHOD_NOT_ALLOWED, format!("method {method} is not allowed on {path}"))
}

/// `/files` and `/init` judge for themselves; `/health` is open.
fn is_authorised(daemon: &Daemon, request: &Request) -> bool {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/health") | (&Method::GET | &Method::POST, "/files") | (&Method::POST, "/init") => {
            true
        }
        _ => has_token(daemon, request.headers()),
    }
}

/// Whether the request carries the token, or none is needed.
pub(crate) fn has_token(daemon: &Daemon, headers: &HeaderMap) -> bool {
    match daemon.access_token() {
        None => true,
        Some(token) => {
            headers.get("x-access-token").is_some_and(|given| is_equal(given.as_bytes(), token.as_bytes()))
        }
    }
}

/// Compares secrets in a time that depends on their lengths only.
pub(crate) fn is_equal(given: &[u8], secret: &[u8]) -> bool {
    let differences =
        given.iter().zip(secret).fold(0_u8, |differences, (left, right)| differences | (left ^ right));
    given.len() == secret.len() && std::hint::black_box(differences) == 0
}

fn allow_all_origins(headers: &mut HeaderMap) {
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        // A star does not cover Authorization.
        ("access-control-allow-headers", "*, Authorization"),
        ("access-control-expose-headers", "*"),
        ("access-control-max-age", "7200"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_compare_by_content_and_length() {
        assert!(is_equal(b"token", b"token"));
        for other in [b"tokem".as_slice(), b"toke", b"tokens", b""] {
            assert!(!is_equal(other, b"token"));
        }
    }
}

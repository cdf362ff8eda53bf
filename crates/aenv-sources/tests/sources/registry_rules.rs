//! Every rule for registries, against a server that breaks it: the right bytes or an error, never wrong bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aenv_sources::{Misbehaviour, Prohibition, SourceError, SourceFactory};

use crate::server::{Reply, Request, Server};
use crate::support::{content, read, registry, uncached, uncached_impatient, write};

const SIZE: usize = 5000;

type Outcome = (Result<(), SourceError>, Server);

/// Reads bytes 2000 to 2099 of a blob whose server answers so.
fn attempt(script: impl Fn(&Request, &[u8]) -> Reply + Send + Sync + 'static) -> Outcome {
    attempt_with(&uncached(), script)
}

fn attempt_with(
    factory: &SourceFactory,
    script: impl Fn(&Request, &[u8]) -> Reply + Send + Sync + 'static,
) -> Outcome {
    let bytes = content(SIZE);
    let served = bytes.clone();
    let server = Server::start(move |request| script(request, &served));
    let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
    let outcome = read(&source, 2000, 100).map(|found| assert!(found == bytes[2000..2100], "wrong bytes"));
    (outcome, server)
}

fn fault(outcome: Result<(), SourceError>) -> Misbehaviour {
    match outcome {
        Err(SourceError::Misbehaved { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_range_is_asked_for_and_no_secret_is_sent() {
    let (outcome, server) = attempt(Reply::range);
    outcome.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].path.starts_with("/v2/team/app/blobs/sha256:"));
    assert_eq!((requests[0].range(), requests[0].header("authorization")), ((2000, 2099), None));
}

#[test]
fn another_range_than_asked_for_is_refused() {
    for range in
        ["bytes 0-99/5000", "bytes 2000-2098/5000", "bytes 2001-2100/5000", "items 2000-2099/5000", "x"]
    {
        let (outcome, server) =
            attempt(move |_, bytes| Reply::new(206).with("Content-Range", range).body(&bytes[..100]));
        assert_eq!(fault(outcome), Misbehaviour::Range, "{range}");
        assert_eq!(server.count(), 3, "a proxy may have had a bad moment");
    }
    let (outcome, _) = attempt(|_, bytes| Reply::new(206).body(&bytes[..100]));
    assert_eq!(fault(outcome), Misbehaviour::Range);
}

#[test]
fn another_size_than_known_is_refused_at_once() {
    let (outcome, server) = attempt(|_, bytes| {
        Reply::new(206).with("Content-Range", "bytes 2000-2099/6000").body(&bytes[2000..2100])
    });
    assert_eq!(fault(outcome), Misbehaviour::Size { expected: 5000, found: 6000 });
    assert_eq!(server.count(), 1);
    let (outcome, _) = attempt(|_, bytes| Reply::new(200).body(&bytes[1..]));
    assert_eq!(fault(outcome), Misbehaviour::Size { expected: 5000, found: 4999 });
}

#[test]
fn a_longer_or_encoded_body_is_refused() {
    let range = "bytes 2000-2099/5000";
    let (outcome, _) =
        attempt(move |_, bytes| Reply::new(206).with("Content-Range", range).body(&bytes[2000..2101]));
    assert_eq!(fault(outcome), Misbehaviour::Range);
    let (outcome, _) = attempt(move |_, bytes| {
        Reply::new(206).with("Content-Range", range).body(&bytes[2000..2101]).chunked()
    });
    assert_eq!(fault(outcome), Misbehaviour::LongBody);
    let (outcome, _) =
        attempt(|request, bytes| Reply::range(request, bytes).with("Content-Encoding", "gzip"));
    assert_eq!(fault(outcome), Misbehaviour::Encoded);
}

#[test]
fn an_ignored_range_is_skipped_to_within_a_limit() {
    let bytes = content(SIZE);
    let served = bytes.clone();
    let server = Server::start(move |_| Reply::new(200).body(&served));
    let source = uncached().open(&registry(&server.url(), &bytes, None)).unwrap();
    assert_eq!(read(&source, 0, 10).unwrap(), bytes[..10]);
    assert_eq!(read(&source, 1000, 50).unwrap(), bytes[1000..1050]);
    assert_eq!(fault(read(&source, 1001, 50).map(|_| ())), Misbehaviour::RangeIgnored);
}

#[test]
fn a_body_that_breaks_off_is_fetched_again() {
    let count = AtomicUsize::new(0);
    let (outcome, server) = attempt(move |request, bytes| {
        let reply = Reply::range(request, bytes);
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            reply.cut(40)
        } else {
            reply
        }
    });
    outcome.unwrap();
    assert_eq!(server.count(), 3);
}

#[test]
fn a_body_that_always_breaks_off_is_an_error_in_time() {
    let begin = Instant::now();
    let (outcome, _) =
        attempt_with(&uncached_impatient(), |request, bytes| Reply::range(request, bytes).cut(40));
    assert!(matches!(outcome, Err(SourceError::Unavailable { .. })), "{outcome:?}");
    assert!(begin.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_server_that_dawdles_is_an_error_in_time() {
    let begin = Instant::now();
    let (outcome, _) = attempt_with(&uncached_impatient(), |request, bytes| {
        Reply::range(request, bytes).dawdle(Duration::from_millis(100))
    });
    assert!(matches!(outcome, Err(SourceError::Unavailable { .. })), "{outcome:?}");
    assert!(begin.elapsed() < Duration::from_secs(8));
}

#[test]
fn an_overloaded_server_is_left_alone_as_long_as_it_says() {
    let begin = Instant::now();
    let count = AtomicUsize::new(0);
    let (outcome, server) = attempt(move |request, bytes| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(429).with("Retry-After", "1"),
        1 => Reply::new(503),
        _ => Reply::range(request, bytes),
    });
    outcome.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.count(), 3);
    let (outcome, server) = attempt(|_, _| Reply::new(503).with("Retry-After", "3600"));
    assert!(matches!(outcome, Err(SourceError::Unavailable { .. })));
    assert_eq!(server.count(), 1);
}

#[test]
fn what_will_not_change_is_not_asked_again() {
    for (status, is_expected) in [
        (404, (|error| matches!(error, SourceError::NotFound { .. })) as fn(&SourceError) -> bool),
        (403, |error| matches!(error, SourceError::Denied { status: 403, .. })),
    ] {
        let (outcome, server) = attempt(move |_, _| Reply::new(status));
        assert!(is_expected(&outcome.unwrap_err()));
        assert_eq!(server.count(), 1);
    }
    let (outcome, _) = attempt(|_, _| Reply::new(418));
    assert_eq!(fault(outcome), Misbehaviour::Status(418));
}

/// A registry with a token service. Tokens are `token-1`, `token-2` and so on; only the newest is good.
struct Guarded {
    server: Server,
    bytes: Vec<u8>,
}

impl Guarded {
    /// `is_good` decides about the number of the token that a request brings.
    fn start(is_good: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let bytes = content(SIZE);
        let served = bytes.clone();
        let issued = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            if request.path.starts_with("/token") {
                let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
                return Reply::new(200).body(format!(r#"{{"token":"token-{number}"}}"#).as_bytes());
            }
            let number =
                request.header("authorization").and_then(|value| value.strip_prefix("Bearer token-"));
            if number.is_some_and(|number| is_good(number.parse().unwrap())) {
                return Reply::range(request, &served);
            }
            let realm = format!("http://{}/token", request.header("host").unwrap());
            let challenge =
                format!(r#"Bearer realm="{realm}",service="reg",scope="repository:team/app:pull,push""#);
            Reply::new(401).with("WWW-Authenticate", &challenge)
        });
        Self { server, bytes }
    }

    fn token_requests(&self) -> Vec<Request> {
        self.server.requests().into_iter().filter(|request| request.path.starts_with("/token")).collect()
    }
}

#[test]
fn a_challenge_is_answered_with_a_token_that_is_kept() {
    let guarded = Guarded::start(|_| true);
    let directory = tempfile::tempdir().unwrap();
    let host = guarded.server.url().replace("http://", "");
    let text = format!(r#"{{"auths":{{"{host}/team":{{"username":"name","password":"secret"}}}}}}"#);
    let path = write(directory.path(), "config.json", &text);
    let factory = uncached();
    let source = factory.open(&registry(&guarded.server.url(), &guarded.bytes, Some(&path))).unwrap();
    for offset in [0, 1000] {
        assert_eq!(read(&source, offset, 10).unwrap(), guarded.bytes[offset..offset + 10]);
    }
    let tokens = guarded.token_requests();
    assert_eq!(tokens.len(), 1);
    let expected = "/token?service=reg&scope=repository%3Ateam%2Fapp%3Apull%2Cpush&account=name";
    assert_eq!(
        (tokens[0].path.as_str(), tokens[0].header("authorization")),
        (expected, Some("Basic bmFtZTpzZWNyZXQ="))
    );
    assert_eq!(guarded.server.count(), 4, "challenge, token, and two reads");
    // Another layer of the repository is asked for with the token at once.
    let other = content(77);
    let source = factory.open(&registry(&guarded.server.url(), &other, Some(&path))).unwrap();
    read(&source, 0, 1).unwrap_err();
    assert_eq!(guarded.token_requests().len(), 1);
}

#[test]
fn a_token_that_expires_between_two_reads_is_replaced() {
    let uses = AtomicUsize::new(0);
    let guarded = Guarded::start(move |number| number == 2 || uses.fetch_add(1, Ordering::SeqCst) == 0);
    let source = uncached().open(&registry(&guarded.server.url(), &guarded.bytes, None)).unwrap();
    for offset in [0, 1000, 2000] {
        assert_eq!(read(&source, offset, 10).unwrap(), guarded.bytes[offset..offset + 10]);
    }
    assert_eq!(guarded.token_requests().len(), 2);
}

#[test]
fn a_token_that_is_never_good_is_an_error() {
    let guarded = Guarded::start(|_| false);
    let source = uncached().open(&registry(&guarded.server.url(), &guarded.bytes, None)).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::Denied { status: 401, .. })));
    assert_eq!(guarded.server.count(), 3, "asked, challenged, asked once more");
}

#[test]
fn a_password_is_sent_when_the_registry_wants_one() {
    let bytes = content(SIZE);
    let served = bytes.clone();
    let server = Server::start(move |request| match request.header("authorization") {
        Some("Basic YTpi") => Reply::range(request, &served),
        _ => Reply::new(401).with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let directory = tempfile::tempdir().unwrap();
    let host = server.url().replace("http://", "");
    let text = format!(r#"{{"auths":{{"{host}":{{"auth":"YTpi"}}}}}}"#);
    let path = write(directory.path(), "config.json", &text);
    let source = uncached().open(&registry(&server.url(), &bytes, Some(&path))).unwrap();
    assert_eq!(read(&source, 7, 7).unwrap(), bytes[7..14]);
    let anonymous = uncached().open(&registry(&server.url(), &bytes, None)).unwrap();
    assert!(matches!(read(&anonymous, 0, 1), Err(SourceError::Denied { .. })));
}

#[test]
fn a_bad_challenge_or_token_is_an_error() {
    for challenge in ["Negotiate", "Bearer service=\"x\"", "Bearer realm=\"ftp://x/\""] {
        let (outcome, _) = attempt(move |_, _| Reply::new(401).with("WWW-Authenticate", challenge));
        assert!(matches!(outcome, Err(SourceError::Misbehaved { .. })), "{challenge}: {outcome:?}");
    }
    let (outcome, _) = attempt(|request, _| match request.path.as_str() {
        "/token" => Reply::new(200).body(br#"{"token":"a\r\nb"}"#),
        _ => Reply::new(401).with("WWW-Authenticate", "Bearer realm=\"/token\""),
    });
    assert_eq!(fault(outcome), Misbehaviour::Token);
}

#[test]
fn a_redirect_is_followed_without_credentials_and_kept() {
    let guarded_bytes = content(SIZE);
    let served = guarded_bytes.clone();
    let store = Server::start(move |request| Reply::range(request, &served));
    let location = format!("{}/object?signature=x", store.url());
    let registry_server = Server::start(move |request| match request.header("authorization") {
        Some("Basic YTpi") => Reply::redirect(&location),
        _ => Reply::new(401).with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let directory = tempfile::tempdir().unwrap();
    let host = registry_server.url().replace("http://", "");
    let text = format!(r#"{{"auths":{{"{host}":{{"auth":"YTpi"}}}}}}"#);
    let path = write(directory.path(), "config.json", &text);
    let source = uncached().open(&registry(&registry_server.url(), &guarded_bytes, Some(&path))).unwrap();
    for offset in [0, 1000] {
        assert_eq!(read(&source, offset, 10).unwrap(), guarded_bytes[offset..offset + 10]);
    }
    assert_eq!((registry_server.count(), store.count()), (2, 2));
    for request in store.requests() {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.path, "/object?signature=x");
    }
}

#[test]
fn a_redirect_that_expired_is_resolved_anew() {
    let count = AtomicUsize::new(0);
    let (bytes, served) = (content(SIZE), content(SIZE));
    let server = Server::start(move |request| match request.path.as_str() {
        "/old" if count.fetch_add(1, Ordering::SeqCst) == 0 => Reply::range(request, &served),
        "/old" => Reply::new(403),
        "/new" => Reply::range(request, &served),
        _ if count.load(Ordering::SeqCst) == 0 => Reply::redirect("/old"),
        _ => Reply::redirect("/new"),
    });
    let source = uncached().open(&registry(&server.url(), &bytes, None)).unwrap();
    for offset in [0, 1000] {
        assert_eq!(read(&source, offset, 10).unwrap(), bytes[offset..offset + 10]);
    }
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths[1..].iter().filter(|path| !path.starts_with("/v2/")).count(), 3, "{paths:?}");
}

#[test]
fn redirects_end() {
    let (outcome, server) = attempt(|_, _| Reply::redirect("/again"));
    assert_eq!(fault(outcome), Misbehaviour::TooManyRedirects);
    assert_eq!(server.count(), 3 * 4, "three attempts of a request and three redirects");
    let (outcome, _) = attempt(|request, bytes| match request.path.as_str() {
        "/1" => Reply::redirect("/2"),
        "/2" => Reply::redirect("3"),
        "/3" => Reply::range(request, bytes),
        _ => Reply::redirect("/1"),
    });
    outcome.unwrap();
    let (outcome, _) = attempt(|_, _| Reply::new(307));
    assert_eq!(fault(outcome), Misbehaviour::Redirect);
}

#[test]
fn nobody_is_led_to_the_metadata_of_a_cloud() {
    for location in [
        "http://169.254.169.254/latest/",
        "http://[fe80::1]/",
        "http://0.0.0.0/",
        "http://[::ffff:a9fe:a9fe]/",
    ] {
        for status in [307, 401] {
            let (outcome, server) = attempt(move |_, _| match status {
                307 => Reply::redirect(location),
                _ => Reply::new(401).with("WWW-Authenticate", &format!("Bearer realm=\"{location}\"")),
            });
            let is_forbidden =
                matches!(outcome, Err(SourceError::Forbidden { reason: Prohibition::Address, .. }));
            assert!(is_forbidden, "{location} {status}: {outcome:?}");
            assert_eq!(server.count(), 1);
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let source = uncached_impatient().open(&registry(&url, b"x", None)).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::Unavailable { .. })));
}

#[test]
fn senseless_references_are_refused_when_opened() {
    for url in ["ftp://host", "http://a:b@host", "host", ""] {
        assert!(uncached().open(&registry(url, b"x", None)).is_err(), "{url}");
    }
}

//! Objects of a store that checks signatures: it computes them anew from what came over the wire.

use aenv_sources::{LayerReference, SourceError};
use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};

use crate::server::{Reply, Request, Server};
use crate::support::{content, digest, read, uncached, write};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const KEY: &str = "layers/a b+é/~x";
const ESCAPED: &str = "/bucket/layers/a%20b%2B%C3%A9/~x";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).unwrap();
    code.update(text.as_bytes());
    code.finalize().into_bytes().to_vec()
}

/// What the store computes for a request, from the headers that the request itself says are signed.
fn expected_signature(request: &Request, scope: &str, signed: &str) -> String {
    let lines: String = signed
        .split(';')
        .map(|name| format!("{name}:{}\n", request.header(name).unwrap_or("missing")))
        .collect();
    let payload = request.header("x-amz-content-sha256").unwrap();
    let canonical = format!("GET\n{}\n\n{lines}\n{signed}\n{payload}", request.path);
    let time = request.header("x-amz-date").unwrap();
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let key = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| keyed(&key, part));
    hex(&keyed(&key, &text))
}

fn is_signed(request: &Request) -> bool {
    let Some(value) = request.header("authorization") else { return false };
    let part = |name: &str| {
        let rest = &value[value.find(name).unwrap() + name.len()..];
        rest.split(',').next().unwrap().to_owned()
    };
    let credential = part("Credential=");
    let (id, scope) = credential.split_once('/').unwrap();
    let signed = part("SignedHeaders=");
    id == "AKID"
        && scope.ends_with("/eu-test-1/s3/aws4_request")
        && ["host", "range", "x-amz-date"].iter().all(|name| signed.split(';').any(|other| other == *name))
        && part("Signature=") == expected_signature(request, scope, &signed)
}

fn store(bytes: &[u8]) -> Server {
    let served = bytes.to_vec();
    Server::start(move |request| match request.path.as_str() {
        ESCAPED if is_signed(request) => Reply::range(request, &served),
        "/bucket/public" => Reply::range(request, &served),
        "/bucket/moved" => Reply::redirect("http://127.0.0.1:1/"),
        _ => Reply::new(403),
    })
}

fn reference(
    server: &Server,
    key: &str,
    bytes: &[u8],
    credentials: Option<std::path::PathBuf>,
) -> LayerReference {
    LayerReference::Object {
        endpoint: server.url(),
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        digest: digest(bytes),
        size_bytes: bytes.len() as u64,
        credentials_path: credentials,
    }
}

#[test]
fn signed_requests_are_accepted_with_the_right_key_only() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(5000);
    let server = store(&bytes);
    let keys = |secret: &str, more: &str| {
        let text = format!(
            r#"{{"access_key_id":"AKID","secret_access_key":"{secret}","region":"eu-test-1"{more}}}"#
        );
        write(directory.path(), "keys.json", &text)
    };
    for more in ["", r#","session_token":"temporary""#] {
        let source = uncached().open(&reference(&server, KEY, &bytes, Some(keys(SECRET, more)))).unwrap();
        assert_eq!(read(&source, 1234, 100).unwrap(), bytes[1234..1334]);
    }
    let session = server.requests().last().unwrap().header("x-amz-security-token").map(str::to_owned);
    assert_eq!(session.as_deref(), Some("temporary"));
    // The file is read for every request, so that a changed key counts at once.
    let source = uncached().open(&reference(&server, KEY, &bytes, Some(keys("wrong", "")))).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::Denied { status: 403, .. })));
    keys(SECRET, "");
    assert_eq!(read(&source, 0, 1).unwrap(), bytes[..1]);
}

#[test]
fn public_objects_are_read_without_keys() {
    let bytes = content(5000);
    let server = store(&bytes);
    let source = uncached().open(&reference(&server, "public", &bytes, None)).unwrap();
    assert_eq!(read(&source, 4990, 100).unwrap(), bytes[4990..]);
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[test]
fn a_redirect_of_a_store_is_not_followed() {
    let bytes = content(10);
    let server = store(&bytes);
    let source = uncached().open(&reference(&server, "moved", &bytes, None)).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::Misbehaved { .. })));
    assert_eq!(server.count(), 1);
}

#[test]
fn a_file_of_keys_that_is_not_one_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(10);
    let server = store(&bytes);
    let path = write(directory.path(), "keys.json", "[default]");
    let source = uncached().open(&reference(&server, KEY, &bytes, Some(path))).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::Credentials { .. })));
    let absent = directory.path().join("absent");
    let source = uncached().open(&reference(&server, KEY, &bytes, Some(absent))).unwrap();
    assert!(matches!(read(&source, 0, 1), Err(SourceError::File { .. })));
    assert_eq!(server.count(), 0);
}

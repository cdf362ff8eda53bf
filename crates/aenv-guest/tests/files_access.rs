//! Tokens and signed URLs of `/files`.

mod support;

use base64::Engine;
use serde_json::json;
use sha2::{Digest, Sha256};
use support::Daemon;

const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");

fn secured() -> Daemon {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.post_json("/init", &json!({"accessToken": "secret", "defaultUser": "root"})).status,
        204
    );
    daemon
}

fn signature(text: &str) -> String {
    let hash = base64::engine::general_purpose::STANDARD_NO_PAD.encode(Sha256::digest(text));
    format!("v1_{}", hash.replace('+', "%2B").replace('/', "%2F"))
}

#[test]
fn test_files_need_the_token_or_a_signature() {
    let daemon = secured();
    for token in [None, Some("wrong"), Some("")] {
        let headers: Vec<(&str, &str)> = token.map(|token| ("X-Access-Token", token)).into_iter().collect();
        for method in ["GET", "POST"] {
            let answer = daemon.request(method, "/files?path=/etc/hostname", &headers, b"");
            assert_eq!(
                (answer.status, answer.json()["code"].as_u64()),
                (401, Some(401)),
                "{method} {token:?}"
            );
        }
    }
    let path = format!("/files?path={}", daemon.directory.path().join("x").display());
    let headers = [OCTETS, ("X-Access-Token", "secret")];
    assert_eq!(daemon.request("POST", &path, &headers, b"text").status, 200);
    assert_eq!(daemon.request("GET", &path, &headers, b"").text(), "text");
    assert_eq!(daemon.post_json("/files/compose", &json!({})).status, 401, "compose takes the token only");
}

#[test]
fn test_a_signature_opens_one_path_for_one_operation() {
    let daemon = secured();
    let path = daemon.directory.path().join("a b").display().to_string();
    let write = signature(&format!("{path}:write::secret"));
    let read = signature(&format!("{path}:read:root:secret"));
    let plus = path.replace(' ', "+");
    let answer = daemon.request("POST", &format!("/files?path={plus}&signature={write}"), &[OCTETS], b"text");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let spaced = path.replace(' ', "%20");
    let good = format!("/files?path={spaced}&username=root&signature={read}");
    assert_eq!(daemon.get(&good).text(), "text");
    for bad in [
        format!("/files?path={spaced}&signature={read}"),
        format!("/files?path={spaced}&username=root&signature={write}"),
        format!("/files?path=/etc/hostname&username=root&signature={read}"),
        format!("{good}&signature_expiration=9999999999"),
    ] {
        assert_eq!(daemon.get(&bad).status, 401, "{bad}");
    }
    let wrong_token = daemon.request("GET", &good, &[("X-Access-Token", "wrong")], b"");
    assert_eq!(wrong_token.status, 401, "a wrong token is refused next to a good signature");
}

#[test]
fn test_an_expired_signature_says_exactly_that() {
    let daemon = secured();
    let expired = signature("/x:read::secret:1000");
    let answer = daemon.get(&format!("/files?path=/x&signature={expired}&signature_expiration=1000"));
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (401, r#"{"code":401,"message":"signature is already expired"}"#)
    );
    let lasting = signature("/x:read::secret:99999999999");
    let answer = daemon.get(&format!("/files?path=/x&signature={lasting}&signature_expiration=99999999999"));
    assert_eq!(answer.status, 404);
}

#[test]
fn test_an_upload_url_without_a_path_takes_the_form_name() {
    let daemon = secured();
    let target = daemon.directory.path().join("from form");
    let body = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\r\ntext\r\n--XX--\r\n",
        target.display()
    );
    let url = format!("/files?signature={}", signature(":write::secret"));
    let headers = [("Content-Type", "multipart/form-data; boundary=XX")];
    assert_eq!(daemon.request("POST", &url, &headers, body.as_bytes()).status, 200);
    assert_eq!(std::fs::read_to_string(&target).expect("read"), "text");
}

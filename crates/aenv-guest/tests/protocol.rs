//! Bad input on the wire: the daemon answers with the contract's error and lives on.

mod support;

use serde_json::json;
use support::{frame, Daemon};

const START: &str = "process.Process/Start";

#[test]
fn test_bad_frames_end_the_stream_with_an_error() {
    let daemon = Daemon::start();
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("no frame", vec![], "invalid_argument"),
        ("half a head", vec![0, 0, 0], "invalid_argument"),
        ("half a payload", vec![0, 0, 0, 0, 9, b'{'], "invalid_argument"),
        ("oversized", vec![0, 0xff, 0xff, 0xff, 0xff], "resource_exhausted"),
        ("compressed", frame(1, b"{}"), "unimplemented"),
        ("not JSON", frame(0, b"\xff\xfe"), "invalid_argument"),
        ("wrong types", frame(0, br#"{"process":{"cmd":["x"]}}"#), "invalid_argument"),
    ];
    for (name, body, code) in cases {
        let mut stream = daemon.stream_with(START, &[], &[body]);
        assert_eq!(stream.status, 200, "{name}");
        let transcript = stream.finish();
        assert_eq!((transcript.error_code(), transcript.pid), (Some(code), None), "{name}");
    }
    assert_eq!(daemon.get("/health").status, 204);
}

#[test]
fn test_deep_json_does_not_exhaust_the_stack() {
    let daemon = Daemon::start();
    let deep = "[".repeat(200_000);
    let answer = daemon.request(
        "POST",
        "/process.Process/List",
        &[("Content-Type", "application/json")],
        deep.as_bytes(),
    );
    assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid_argument")));
}

#[test]
fn test_wrong_content_types_and_encodings_are_refused() {
    let daemon = Daemon::start();
    for content_type in ["application/proto", "text/plain", ""] {
        let answer =
            daemon.request("POST", "/process.Process/List", &[("Content-Type", content_type)], b"{}");
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (415, Some(415)), "{content_type:?}");
    }
    let swapped = [("Content-Type", "application/connect+json")];
    let answer = daemon.request("POST", "/process.Process/List", &swapped, b"{}");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid_argument")));
    let gzip = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    let answer = daemon.request("POST", "/process.Process/List", &gzip, b"{}");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (501, Some("unimplemented")));
    let identity = [("Content-Type", "application/json; charset=utf-8"), ("Content-Encoding", "identity")];
    assert_eq!(daemon.request("POST", "/process.Process/List", &identity, b"{}").status, 200);
}

#[test]
fn test_oversized_documents_are_refused() {
    let daemon = Daemon::start();
    let body = vec![b' '; (1 << 20) + 1];
    let answer =
        daemon.request("POST", "/process.Process/List", &[("Content-Type", "application/json")], &body);
    assert_eq!((answer.status, answer.json()["code"].as_str()), (429, Some("resource_exhausted")));
    let answer = daemon.request("POST", "/init", &[("Content-Type", "application/json")], &body);
    assert_eq!((answer.status, answer.json()["code"].as_u64()), (413, Some(413)));
}

#[test]
fn test_unknown_routes_methods_and_selectors_say_so() {
    let daemon = Daemon::start();
    let missing = daemon.get("/nothing/here");
    assert_eq!((missing.status, missing.json()["code"].as_u64()), (404, Some(404)));
    assert_eq!(daemon.get("/process.Process/List").status, 405);
    assert_eq!(daemon.request("DELETE", "/health", &[], b"").status, 405);
    let unknown = daemon.call("process.Process/Sing", json!({}));
    assert_eq!((unknown.status, unknown.json()["code"].as_str()), (501, Some("unimplemented")));
    for selector in [json!({}), json!({"process": {}}), json!({"process": {"pid": 1, "tag": "x"}})] {
        assert_eq!(daemon.call("process.Process/CloseStdin", selector).json()["code"], "invalid_argument");
    }
}

#[test]
fn test_bad_time_limits_and_authorization_are_refused() {
    let daemon = Daemon::start();
    let body = [frame(0, br#"{"process":{"cmd":"true"}}"#)];
    for limit in ["-1", "soon", "99999999999"] {
        let transcript = daemon.stream_with(START, &[("Connect-Timeout-Ms", limit)], &body).finish();
        assert_eq!(transcript.error_code(), Some("invalid_argument"), "{limit}");
    }
    for authorization in ["Bearer x", "Basic !", "Basic cm9vdA=="] {
        let transcript = daemon.stream_with(START, &[("Authorization", authorization)], &body).finish();
        assert_eq!(transcript.error_code(), Some("unauthenticated"), "{authorization}");
    }
}

#[test]
fn test_broken_http_closes_only_its_connection() {
    let daemon = Daemon::start();
    for bytes in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /init HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ] {
        let mut connection = daemon.connect();
        connection.write(bytes);
        connection.read_head();
        assert_eq!(connection.status, 400);
    }
    let mut connection = daemon.connect();
    connection.write(format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20)).as_bytes());
    connection.read_head();
    assert_eq!(connection.status, 431);
    assert_eq!(daemon.get("/health").status, 204);
}

#[test]
fn test_browsers_of_any_origin_are_let_in() {
    let daemon = Daemon::start();
    let origin = [("Origin", "https://example.org"), ("Access-Control-Request-Method", "POST")];
    let preflight = daemon.request("OPTIONS", "/process.Process/Start", &origin, b"");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
    let answer = daemon.request("GET", "/health", &origin, b"");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some("*")));
}

#[test]
fn test_connections_are_kept_alive() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    for _ in 0..3 {
        connection.headers.clear();
        connection.write(b"GET /health HTTP/1.1\r\nHost: guest\r\n\r\n");
        connection.read_head();
        assert_eq!(connection.status, 204);
    }
}

#[test]
fn test_a_request_whose_end_comes_late_does_not_cost_the_connection() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    let head =
        "POST /process.Process/Start HTTP/1.1\r\nHost: guest\r\nContent-Type: application/connect+json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    for _ in 0..3 {
        connection.write(head.as_bytes());
        connection.write_chunk(&frame(0, br#"{"process":{"cmd":"/bin/true"},"stdin":false}"#));
        connection.read_head();
        let end = connection.finish().end.expect("an end");
        assert_eq!(end["exitCode"], 0);
        // The process has ended long ago when the client says that its request has.
        connection.write(b"0\r\n\r\n");
        connection.headers.clear();
    }
}

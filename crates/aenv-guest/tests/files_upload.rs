//! `POST /files` and `/files/compose`: bytes, owners, modes, metadata, targets, and what must be refused.

mod support;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;
use support::{cannot_test, Answer, Daemon};

const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");
const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=XX");

fn url(path: &Path) -> String {
    let encoded: String = path.to_string_lossy().bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/files?path={encoded}")
}

fn form(parts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file_name, bytes) in parts {
        let head = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\r\n"
        );
        body.extend(head.bytes().chain(bytes.iter().copied()).chain(*b"\r\n"));
    }
    body.extend(b"--XX--\r\n");
    body
}

fn put(daemon: &Daemon, path: &Path, headers: &[(&str, &str)], bytes: &[u8]) -> Answer {
    let mut all = vec![OCTETS];
    all.extend_from_slice(headers);
    daemon.request("POST", &url(path), &all, bytes)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("compressed")
}

fn file(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.directory.path().join(name)
}

#[test]
fn test_plain_bytes_become_a_file_with_parents() {
    let daemon = Daemon::start();
    let path = file(&daemon, "new/dir/a b.txt");
    let answer = put(&daemon, &path, &[], b"content");
    let expected = json!([{"path": path, "name": "a b.txt", "type": "file"}]);
    assert_eq!((answer.status, answer.json()), (200, expected));
    assert_eq!(std::fs::read(&path).expect("read"), b"content");
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o7777, 0o644);
    let parent = path.parent().expect("a parent").metadata().expect("there");
    assert_eq!(parent.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn test_files_and_new_parents_belong_to_the_user_and_old_content_goes() {
    let daemon = Daemon::start();
    let path = file(&daemon, "theirs/file");
    let target = format!("{}&username=1234", url(&path));
    for text in ["a longer text", "short"] {
        assert_eq!(daemon.request("POST", &target, &[OCTETS], text.as_bytes()).status, 200);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
    }
    for path in [path.as_path(), path.parent().expect("a parent")] {
        assert_eq!(path.metadata().expect("there").uid(), 1234);
    }
    assert_ne!(
        daemon.directory.path().metadata().expect("there").uid(),
        1234,
        "an old parent keeps its owner"
    );
}

#[test]
fn test_several_files_in_one_form() {
    let daemon = Daemon::start();
    let names = ["x/one", "y/häuser", "say %22hi%22", "z z"];
    let targets: Vec<String> = names.iter().map(|name| file(&daemon, name).display().to_string()).collect();
    let mut parts: Vec<(&str, &str, &[u8])> = vec![("comment", "ignored", b"not a file")];
    parts.extend(targets.iter().map(|target| ("file", target.as_str(), target.as_bytes())));
    let answer = daemon.request("POST", "/files", &[FORM], &form(&parts));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let written = answer.json();
    for (index, target) in targets.iter().enumerate() {
        let path = target.replace("%22", "\"");
        assert_eq!(written[index]["path"], json!(path));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), *target);
    }
    assert!(!file(&daemon, "ignored").exists());
}

#[test]
fn test_the_query_names_the_only_target() {
    let daemon = Daemon::start();
    let path = file(&daemon, "target");
    let answer = daemon.request("POST", &url(&path), &[FORM], &form(&[("file", "other/name", b"x")]));
    assert_eq!((answer.status, answer.json()[0]["path"].clone()), (200, json!(path)));
    let two = form(&[("file", "a", b"x"), ("file", "b", b"y")]);
    assert_eq!(daemon.request("POST", &url(&path), &[FORM], &two).status, 400);
    let same = format!("{}/./dir/../same", daemon.directory.path().display());
    let twice = form(&[("file", &file(&daemon, "same").display().to_string(), b"x"), ("file", &same, b"y")]);
    assert_eq!(daemon.request("POST", "/files", &[FORM], &twice).status, 400);
}

#[test]
fn test_large_chunked_and_compressed_bodies() {
    let daemon = Daemon::start();
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|index| (index / 3 % 255) as u8).collect();
    let path = file(&daemon, "big");
    assert_eq!(put(&daemon, &path, &[("Content-Encoding", "gzip")], &gzip(&bytes)).status, 200);
    assert!(std::fs::read(&path).expect("read") == bytes);
    let packed_form = gzip(&form(&[("file", "big", &bytes)]));
    let headers = [FORM, ("Content-Encoding", "gzip")];
    assert_eq!(daemon.request("POST", &url(&file(&daemon, "form")), &headers, &packed_form).status, 200);
    assert!(std::fs::read(file(&daemon, "form")).expect("read") == bytes);
    let mut connection = daemon.connect();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        url(&file(&daemon, "chunked")),
        OCTETS.1
    );
    connection.write(head.as_bytes());
    bytes.chunks(77_777).for_each(|chunk| connection.write_chunk(chunk));
    connection.write(b"0\r\n\r\n");
    connection.read_head();
    assert_eq!(connection.status, 200);
    assert!(std::fs::read(file(&daemon, "chunked")).expect("read") == bytes);
}

#[test]
fn test_bad_uploads_are_refused_and_say_why() {
    let daemon = Daemon::start();
    let path = file(&daemon, "file");
    let directory = daemon.directory.path();
    type Case<'a> = (&'a str, String, Vec<(&'a str, &'a str)>, &'a [u8]);
    let cases: [Case; 9] = [
        ("a directory", url(directory), vec![OCTETS], b"x"),
        ("no path", "/files".into(), vec![OCTETS], b"x"),
        ("no content type", url(&path), vec![], b"x"),
        ("another content type", url(&path), vec![("Content-Type", "application/json")], b"{}"),
        ("no boundary", url(&path), vec![("Content-Type", "multipart/form-data")], b"x"),
        ("a broken form", url(&path), vec![FORM], b"--XX\r\nnonsense"),
        ("an unknown encoding", url(&path), vec![OCTETS, ("Content-Encoding", "br")], b"x"),
        ("broken gzip", url(&path), vec![OCTETS, ("Content-Encoding", "gzip")], b"not gzip"),
        ("a device", "/files?path=/dev/null".into(), vec![OCTETS], b"x"),
    ];
    for (what, target, headers, body) in cases {
        let answer = daemon.request("POST", &target, &headers, body);
        assert_eq!(
            (answer.status, answer.json()["code"].as_u64()),
            (400, Some(400)),
            "{what}: {}",
            answer.text()
        );
    }
    assert_eq!(daemon.request("POST", "/files?path=a&username=nobody-here", &[OCTETS], b"x").status, 401);
}

#[test]
fn test_truncated_gzip_is_refused() {
    let daemon = Daemon::start();
    let mut packed = gzip(&[7; 100_000]);
    packed.truncate(packed.len() - 4);
    let answer = put(&daemon, &file(&daemon, "cut"), &[("Content-Encoding", "gzip")], &packed);
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[test]
fn test_the_reason_of_a_refusal_reaches_a_client_that_is_still_sending() {
    let daemon = Daemon::start();
    let answer = put(&daemon, daemon.directory.path(), &[], &vec![0; 20 << 20]);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("is a directory"), "{}", answer.text());
}

#[test]
fn test_a_full_disk_is_507() {
    let daemon = Daemon::start();
    let answer = put(&daemon, Path::new("/dev/full"), &[], b"x");
    assert_eq!(answer.status, 400, "the device that plays a full disk is a device");
    let mount = file(&daemon, "small");
    std::fs::create_dir(&mount).expect("made");
    let flags = nix::mount::MsFlags::empty();
    let Ok(()) = nix::mount::mount(Some("tmpfs"), &mount, Some("tmpfs"), flags, Some("size=64k,nr_inodes=4"))
    else {
        cannot_test("root, to mount");
        return;
    };
    let full = put(&daemon, &mount.join("file"), &[], &vec![1; 1 << 20]);
    let statuses: Vec<u16> =
        (0..4).map(|name| put(&daemon, &mount.join(name.to_string()), &[], b"").status).collect();
    nix::mount::umount(&mount).expect("unmounted");
    assert_eq!((full.status, full.json()["code"].as_u64()), (507, Some(507)));
    assert_eq!(statuses.last(), Some(&507), "no inodes left: {statuses:?}");
}

#[test]
fn test_metadata_is_stored_shown_and_replaced() {
    let daemon = Daemon::start();
    let path = file(&daemon, "file");
    let answer = put(&daemon, &path, &[("X-Metadata-Author", "me"), ("x-metadata-k", "v w")], b"x");
    assert_eq!(answer.json()[0]["metadata"], json!({"author": "me", "k": "v w"}));
    let stat = daemon.call("filesystem.Filesystem/Stat", json!({"path": path}));
    assert_eq!(stat.json()["entry"]["metadata"], json!({"author": "me", "k": "v w"}));
    assert_eq!(put(&daemon, &path, &[], b"x").json()[0].get("metadata"), None);
    assert_eq!(put(&daemon, &path, &[("x-metadata-a", "é")], b"x").status, 400);
    assert_eq!(put(&daemon, &path, &[("x-metadata-a", &"v".repeat(4096))], b"x").status, 400);
}

#[test]
fn test_an_interrupted_upload_frees_its_connection_and_leaves_the_daemon_well() {
    let daemon = Daemon::start();
    for _ in 0..100 {
        let mut connection = daemon.connect();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: {}\r\nContent-Length: 1000\r\n\r\npart",
            url(&file(&daemon, "cut")),
            OCTETS.1
        );
        connection.write(head.as_bytes());
    }
    support::eventually("uploads are accepted again", || {
        put(&daemon, &file(&daemon, "next"), &[], b"x").status == 200
    });
}

#[test]
fn test_compose_joins_files_and_removes_them() {
    let daemon = Daemon::start();
    for (name, text) in [("a", "one "), ("b", "two ")] {
        std::fs::write(file(&daemon, name), text).expect("written");
    }
    let destination = file(&daemon, "new/joined");
    let message = json!({"source_paths": [file(&daemon, "a"), file(&daemon, "b"), file(&daemon, "a")], "destination": destination, "username": "1234"});
    let answer = daemon.post_json("/files/compose", &message);
    assert_eq!(
        (answer.status, answer.json()["path"].clone()),
        (200, json!(destination)),
        "{}",
        answer.text()
    );
    assert_eq!(std::fs::read_to_string(&destination).expect("read"), "one two one ");
    assert_eq!(destination.metadata().expect("there").uid(), 1234);
    assert!(!file(&daemon, "a").exists() && !file(&daemon, "b").exists());
    for (status, message) in [
        (404, json!({"source_paths": [file(&daemon, "a")], "destination": destination})),
        (400, json!({"source_paths": [], "destination": destination})),
        (400, json!({"source_paths": [destination], "destination": ""})),
        (400, json!({"source_paths": [destination], "destination": daemon.directory.path()})),
        (400, json!({"source_paths": ["/dev/zero"], "destination": destination})),
        (400, json!({"destination": destination})),
        (401, json!({"source_paths": [destination], "destination": destination, "username": "nobody-here"})),
    ] {
        assert_eq!(daemon.post_json("/files/compose", &message).status, status, "{message}");
    }
    assert_eq!(std::fs::read_to_string(&destination).expect("still there"), "one two one ");
}

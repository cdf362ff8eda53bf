//! `GET /files`: bytes, headers, conditions, ranges, encodings, and what must be refused.

mod support;

use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;

use support::{Answer, Daemon};

fn url(path: &Path) -> String {
    let encoded: String = path.to_string_lossy().bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/files?path={encoded}")
}

fn get_with(daemon: &Daemon, path: &Path, headers: &[(&str, &str)]) -> Answer {
    daemon.request("GET", &url(path), headers, b"")
}

fn text_file(daemon: &Daemon, name: &str, text: &str) -> std::path::PathBuf {
    let path = daemon.directory.path().join(name);
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn test_a_file_arrives_with_its_headers() {
    let daemon = Daemon::start();
    let path = text_file(&daemon, "a b.json", "{}");
    let answer = daemon.get(&url(&path));
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("content-disposition"), Some("inline; filename=\"a b.json\""));
    assert_eq!(answer.header("content-length"), Some("2"));
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
    assert!(answer.header("last-modified").is_some_and(|date| date.ends_with(" GMT")));
}

#[test]
fn test_sizes_around_the_buffers_arrive_complete() {
    let daemon = Daemon::start();
    let path = daemon.directory.path().join("file");
    for size in [0, 1, 65_535, 65_536, 65_537, 122_880, 1_000_003] {
        let bytes: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let answer = daemon.get(&url(&path));
        assert_eq!((answer.status, answer.body.len()), (200, size));
        assert!(answer.body == bytes, "{size} bytes differ");
    }
}

#[test]
fn test_missing_special_and_directory_are_refused_at_once() {
    let daemon = Daemon::start();
    let fifo = daemon.directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let missing = daemon.directory.path().join("missing");
    let answer = daemon.get(&url(&missing));
    let expected = format!("path '{}' does not exist", missing.display());
    assert_eq!((answer.status, answer.json()["message"].as_str()), (404, Some(expected.as_str())));
    for refused in [fifo.as_path(), daemon.directory.path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
        let answer = daemon.get(&url(refused));
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (400, Some(400)), "{refused:?}");
    }
    assert_eq!(daemon.get("/files?path=a&username=nobody-here").status, 401);
    assert_eq!(daemon.request("PUT", "/files?path=a", &[], b"").status, 405);
}

#[test]
fn test_links_are_followed_and_measured_files_are_whole() {
    let daemon = Daemon::start();
    let link = daemon.directory.path().join("link");
    symlink(text_file(&daemon, "target", "behind"), &link).expect("a link");
    assert_eq!(daemon.get(&url(&link)).text(), "behind");
    let status = daemon.get("/files?path=/proc/self/status");
    assert!(status.text().starts_with("Name:"), "{}", status.text());
}

#[test]
fn test_ranges_give_parts() {
    let daemon = Daemon::start();
    let big: String = (0..40_000).map(|number| format!("{number:05}")).collect();
    let path = text_file(&daemon, "big", &big);
    for (range, start, end) in [
        ("0-4", 0, 5),
        ("199990-", 199_990, 200_000),
        ("-7", 199_993, 200_000),
        ("60000-190000", 60_000, 190_001),
    ] {
        let answer =
            get_with(&daemon, &path, &[("Range", &format!("bytes={range}")), ("Accept-Encoding", "gzip")]);
        assert_eq!((answer.status, answer.header("content-encoding")), (206, None), "{range}");
        assert_eq!(
            answer.header("content-range"),
            Some(format!("bytes {start}-{}/200000", end - 1).as_str())
        );
        assert!(answer.text() == big[start..end], "{range}");
    }
    let outside = get_with(&daemon, &path, &[("Range", "bytes=200000-")]);
    assert_eq!((outside.status, outside.header("content-range")), (416, Some("bytes */200000")));
    assert_eq!(get_with(&daemon, &path, &[("Range", "bytes=0-1,4-5")]).status, 200);
}

#[test]
fn test_a_copy_that_is_current_is_not_sent_again() {
    let daemon = Daemon::start();
    let path = text_file(&daemon, "file", "text");
    let date = daemon.get(&url(&path)).header("last-modified").expect("a date").to_owned();
    let current = get_with(&daemon, &path, &[("If-Modified-Since", &date)]);
    assert_eq!((current.status, current.body.len()), (304, 0));
    assert_eq!(
        get_with(&daemon, &path, &[("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")]).status,
        412
    );
    let stale = [("If-Range", "Thu, 01 Jan 1970 00:00:00 GMT"), ("Range", "bytes=0-0")];
    assert_eq!(get_with(&daemon, &path, &stale).text(), "text");
}

#[test]
fn test_gzip_is_sent_when_wanted_and_useful() {
    let daemon = Daemon::start();
    let text = "all work and no play ".repeat(20_000);
    let path = text_file(&daemon, "text", &text);
    let packed = get_with(&daemon, &path, &[("Accept-Encoding", "gzip, deflate")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < text.len() / 10);
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(packed.body.as_slice()).read_to_string(&mut unpacked).expect("valid gzip");
    assert!(unpacked == text);
    let small = get_with(&daemon, &text_file(&daemon, "small", "hi"), &[("Accept-Encoding", "gzip")]);
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    let empty = get_with(&daemon, &text_file(&daemon, "empty", ""), &[("Accept-Encoding", "gzip")]);
    assert_eq!((empty.status, empty.body.len(), empty.header("content-encoding")), (200, 0, None));
    assert_eq!(get_with(&daemon, &path, &[("Accept-Encoding", "br, identity;q=0")]).status, 406);
}

#[test]
fn test_gzip_is_not_wasted_on_noise_unless_nothing_else_is_accepted() {
    let daemon = Daemon::start();
    let path = daemon.directory.path().join("noise");
    let mut noise = vec![0; 300_000];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut noise)).expect("noise");
    std::fs::write(&path, &noise).expect("written");
    let plain = get_with(&daemon, &path, &[("Accept-Encoding", "gzip")]);
    assert_eq!((plain.header("content-encoding"), plain.header("content-length")), (None, Some("300000")));
    assert!(plain.body == noise);
    let packed = get_with(&daemon, &path, &[("Accept-Encoding", "gzip, identity;q=0")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed.body.as_slice()).read_to_end(&mut unpacked).expect("valid gzip");
    assert!(unpacked == noise);
}

#[test]
fn test_a_reader_that_leaves_early_disturbs_nobody() {
    let daemon = Daemon::start();
    let path = daemon.directory.path().join("sparse");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 36)).expect("created");
    for _ in 0..20 {
        let mut connection = daemon.send("GET", &url(&path), &[], b"");
        connection.read_head();
        assert_eq!(connection.header("content-length"), Some("68719476736"));
        assert!(connection.read_body(&mut [0; 1000]) > 0);
    }
    assert_eq!(daemon.get("/health").status, 204);
    let end = get_with(&daemon, &path, &[("Range", "bytes=-5")]);
    assert_eq!((end.status, end.body.as_slice()), (206, [0; 5].as_slice()));
}

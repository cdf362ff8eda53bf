//! Service `filesystem.Filesystem` without watching: entries, order, links, and the codes of what fails.

mod support;

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{json, Value};
use support::{Answer, Daemon};

fn call(daemon: &Daemon, method: &str, message: Value) -> Answer {
    daemon.call(&format!("filesystem.Filesystem/{method}"), message)
}

#[track_caller]
fn assert_fails(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{}", answer.text());
}

#[test]
fn test_stat_describes_a_file() {
    let daemon = Daemon::start();
    let path = daemon.directory.path().join("a.txt");
    std::fs::write(&path, "12").expect("written");
    let answer = call(&daemon, "Stat", json!({"path": path}));
    let mut entry = answer.json()["entry"].clone();
    let modified = entry["modifiedTime"].take();
    assert!(modified.as_str().is_some_and(|time| time.len() >= 20 && time.ends_with('Z')), "{modified}");
    let expected = json!({
        "name": "a.txt", "type": "FILE_TYPE_FILE", "path": path, "size": "2", "mode": 420, "permissions": "-rw-r--r--",
        "owner": "root", "group": "root", "modifiedTime": null,
    });
    assert_eq!((answer.status, entry), (200, expected));
    assert_fails(&call(&daemon, "Stat", json!({"path": "/nowhere"})), 404, "not_found");
}

#[test]
fn test_links_show_target_and_themselves() {
    let daemon = Daemon::start();
    let base = daemon.directory.path().canonicalize().expect("a real path");
    std::fs::create_dir(base.join("dir")).expect("made");
    symlink("dir", base.join("link")).expect("a link");
    symlink("nothing", base.join("broken")).expect("a link");
    let link = call(&daemon, "Stat", json!({"path": base.join("link")})).json()["entry"].clone();
    assert_eq!(link["type"], "FILE_TYPE_DIRECTORY");
    assert_eq!((&link["symlinkTarget"], &link["isSymlink"]), (&json!(base.join("dir")), &json!(true)));
    assert_eq!(link["permissions"], "Lrwxrwxrwx");
    let broken = call(&daemon, "Stat", json!({"path": base.join("broken")})).json()["entry"].clone();
    assert_eq!(broken["type"], "FILE_TYPE_UNSPECIFIED");
    assert_eq!(broken["symlinkTarget"], json!(base.join("broken")));
}

#[test]
fn test_list_orders_depth_first_on_the_requested_base() {
    let daemon = Daemon::start();
    let base = daemon.directory.path();
    for path in ["real/b/inner", "real/a"] {
        std::fs::create_dir_all(base.join(path)).expect("made");
    }
    std::fs::write(base.join("real/b/z"), "").expect("written");
    symlink("real", base.join("link")).expect("a link");
    let names = |depth: Value| -> Vec<String> {
        let answer = call(&daemon, "ListDir", json!({"path": base.join("link"), "depth": depth}));
        let entries = answer.json()["entries"].as_array().expect("entries").clone();
        let relative = |entry: &Value| {
            let path = Path::new(entry["path"].as_str().expect("a path"));
            path.strip_prefix(base).expect("the requested base").display().to_string()
        };
        entries.iter().map(relative).collect()
    };
    for depth in [json!(0), json!(1), json!("1"), json!(null)] {
        assert_eq!(names(depth), ["link/a", "link/b"]);
    }
    assert_eq!(names(json!(2)), ["link/a", "link/b", "link/b/inner", "link/b/z"]);
    let empty = call(&daemon, "ListDir", json!({"path": base.join("real/a")}));
    assert_eq!(empty.json()["entries"], json!([]));
}

#[test]
fn test_list_says_why_not() {
    let daemon = Daemon::start();
    let base = daemon.directory.path();
    std::fs::write(base.join("file"), "").expect("written");
    symlink("loop", base.join("loop")).expect("a link");
    assert_fails(&call(&daemon, "ListDir", json!({"path": base.join("missing")})), 404, "not_found");
    assert_fails(&call(&daemon, "ListDir", json!({"path": base.join("file")})), 400, "invalid_argument");
    assert_fails(&call(&daemon, "ListDir", json!({"path": base.join("loop")})), 400, "failed_precondition");
    assert_fails(&call(&daemon, "ListDir", json!({"path": base, "depth": -1})), 400, "invalid_argument");
}

#[test]
fn test_make_directory_once() {
    let daemon = Daemon::start();
    let path = daemon.directory.path().join("a/b");
    let made = call(&daemon, "MakeDir", json!({"path": path}));
    assert_eq!((made.status, &made.json()["entry"]["permissions"]), (200, &json!("drwxr-xr-x")));
    assert_fails(&call(&daemon, "MakeDir", json!({"path": path})), 409, "already_exists");
    std::fs::write(path.join("file"), "").expect("written");
    assert_fails(&call(&daemon, "MakeDir", json!({"path": path.join("file")})), 400, "invalid_argument");
}

#[test]
fn test_move_replaces_and_creates_parents() {
    let daemon = Daemon::start();
    let (source, destination) =
        (daemon.directory.path().join("source"), daemon.directory.path().join("new/place"));
    for text in ["one", "two"] {
        std::fs::write(&source, text).expect("written");
        let moved = call(&daemon, "Move", json!({"source": source, "destination": destination}));
        assert_eq!((moved.status, &moved.json()["entry"]["path"]), (200, &json!(destination)));
        assert_eq!(std::fs::read_to_string(&destination).expect("read"), text);
    }
    let again = call(&daemon, "Move", json!({"source": source, "destination": destination}));
    assert_fails(&again, 404, "not_found");
    let nowhere = call(&daemon, "Move", json!({"source": destination}));
    assert_fails(&nowhere, 400, "invalid_argument");
}

#[test]
fn test_remove_takes_everything_and_is_content_with_nothing() {
    let daemon = Daemon::start();
    let top = daemon.directory.path().join("top");
    std::fs::create_dir_all(top.join("a/b/c")).expect("made");
    std::fs::write(top.join("a/file"), "").expect("written");
    for _ in 0..2 {
        let answer = call(&daemon, "Remove", json!({"path": top}));
        assert_eq!((answer.status, answer.json()), (200, json!({})));
    }
    assert!(!top.exists());
    for refused in [json!({"path": "/"}), json!({"path": ""}), json!({})] {
        assert_fails(&call(&daemon, "Remove", refused), 400, "invalid_argument");
    }
}

#[test]
fn test_users_own_what_they_make_and_unknown_ones_are_refused() {
    let daemon = Daemon::start();
    let message = json!({"path": daemon.directory.path().join("theirs")}).to_string();
    let make = |name: &str| {
        let authorization = format!("Basic {}", support::base64_of(format!("{name}:").as_bytes()));
        let headers = [("Content-Type", "application/json"), ("Authorization", authorization.as_str())];
        daemon.request("POST", "/filesystem.Filesystem/MakeDir", &headers, message.as_bytes())
    };
    assert_fails(&make("nobody-here"), 401, "unauthenticated");
    assert_eq!(make("nobody").json()["entry"]["owner"], "nobody");
}

#[test]
fn test_unknown_methods_are_unimplemented() {
    let daemon = Daemon::start();
    assert_fails(&call(&daemon, "Teleport", json!({})), 501, "unimplemented");
}

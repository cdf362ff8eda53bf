//! Watching directories by stream and by polling: which events, in which order, under which names, and the bounds.

mod support;

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;

use serde_json::{json, Value};
use support::{Connection, Daemon};

fn call(daemon: &Daemon, method: &str, message: Value) -> support::Answer {
    daemon.call(&format!("filesystem.Filesystem/{method}"), message)
}

fn watch(daemon: &Daemon, message: Value) -> String {
    let answer = call(daemon, "CreateWatcher", message);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["watcherId"].as_str().expect("an id").to_owned()
}

/// `TYPE name` of every event since the last time.
fn events(daemon: &Daemon, id: &str) -> Vec<String> {
    let answer = call(daemon, "GetWatcherEvents", json!({"watcherId": id}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["events"].as_array().expect("events").iter().map(describe).collect()
}

fn describe(event: &Value) -> String {
    let event_type = event["type"].as_str().expect("a type").trim_start_matches("EVENT_TYPE_");
    format!("{event_type} {}", event["name"].as_str().expect("a name"))
}

fn upload(daemon: &Daemon, path: &Path) {
    let headers = [("Content-Type", "application/octet-stream")];
    let answer = daemon.request("POST", &format!("/files?path={}", path.display()), &headers, b"content");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn test_a_written_file_gives_exactly_three_events_to_the_next_poll() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir(&directory).expect("made");
    let id = watch(&daemon, json!({"path": directory}));
    for round in 0..50 {
        let name = format!("new{round}");
        upload(&daemon, &directory.join(&name));
        let expected = [format!("CREATE {name}"), format!("CHMOD {name}"), format!("WRITE {name}")];
        assert_eq!(events(&daemon, &id), expected);
    }
    assert_eq!(events(&daemon, &id), Vec::<String>::new());
}

#[test]
fn test_changes_have_the_names_of_the_contract() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir_all(directory.join("sub")).expect("made");
    fs::write(directory.join("a"), "x").expect("written");
    let id = watch(&daemon, json!({"path": directory}));
    fs::rename(directory.join("a"), directory.join("b")).expect("renamed");
    fs::set_permissions(directory.join("b"), fs::Permissions::from_mode(0o600)).expect("changed");
    fs::remove_file(directory.join("b")).expect("removed");
    fs::write(directory.join("sub/inner"), "x").expect("written");
    assert_eq!(events(&daemon, &id), ["RENAME a", "CREATE b", "CHMOD b", "REMOVE b"]);
    fs::remove_dir_all(&directory).expect("removed");
    assert_eq!(events(&daemon, &id).last().map(String::as_str), Some("REMOVE ."));
}

#[test]
fn test_recursive_watching_covers_what_appears_later() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir_all(directory.join("old/deep")).expect("made");
    let outside = daemon.directory.path().join("outside");
    fs::create_dir(&outside).expect("made");
    let id = watch(&daemon, json!({"path": directory, "recursive": true}));
    fs::write(directory.join("old/deep/file"), "x").expect("written");
    let seen = events(&daemon, &id);
    assert!(seen.contains(&"WRITE old/deep/file".to_owned()), "{seen:?}");
    fs::create_dir_all(directory.join("new/deep")).expect("made");
    fs::write(directory.join("new/deep/file"), "x").expect("written");
    let seen = events(&daemon, &id);
    for expected in ["CREATE new", "CREATE new/deep", "CREATE new/deep/file", "WRITE new/deep/file"] {
        assert!(seen.contains(&expected.to_owned()), "{expected} is not in {seen:?}");
    }
    fs::rename(directory.join("new"), directory.join("moved")).expect("renamed");
    assert!(events(&daemon, &id).contains(&"RENAME new".to_owned()));
    fs::write(directory.join("moved/deep/file"), "y").expect("written");
    assert!(events(&daemon, &id).iter().all(|event| event.ends_with(" moved/deep/file")));
    fs::rename(directory.join("moved"), outside.join("gone")).expect("moved out");
    assert_eq!(events(&daemon, &id), ["RENAME moved"]);
    fs::write(outside.join("gone/deep/file"), "z").expect("written");
    assert_eq!(events(&daemon, &id), Vec::<String>::new());
}

#[test]
fn test_links_to_directories_are_not_entered() {
    let daemon = Daemon::start();
    let (directory, other) = (daemon.directory.path().join("watched"), daemon.directory.path().join("other"));
    fs::create_dir(&directory).expect("made");
    fs::create_dir(&other).expect("made");
    let id = watch(&daemon, json!({"path": directory, "recursive": true}));
    symlink(&other, directory.join("link")).expect("a link");
    assert_eq!(events(&daemon, &id), ["CREATE link"]);
    fs::write(other.join("file"), "x").expect("written");
    assert_eq!(events(&daemon, &id), Vec::<String>::new());
}

#[test]
fn test_entries_come_only_when_asked_for_and_only_with_what_is_left() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir(&directory).expect("made");
    let id = watch(&daemon, json!({"path": directory, "include_entry": true}));
    fs::write(directory.join("kept"), "12").expect("written");
    fs::write(directory.join("lost"), "12").expect("written");
    fs::remove_file(directory.join("lost")).expect("removed");
    let answer = call(&daemon, "GetWatcherEvents", json!({"watcherId": id})).json();
    for event in answer["events"].as_array().expect("events") {
        match (event["name"].as_str(), event["type"].as_str()) {
            (Some("kept"), _) => {
                assert_eq!(event["entry"]["path"], json!(directory.join("kept")));
                assert_eq!(event["entry"]["type"], "FILE_TYPE_FILE");
            }
            (_, Some("EVENT_TYPE_REMOVE")) => assert_eq!(event.get("entry"), None, "{event}"),
            // Whether the file was still there when its creation was looked at is a matter of luck.
            _ => {}
        }
    }
}

#[test]
fn test_the_watched_directory_itself_is_a_dot() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir(&directory).expect("made");
    let id = watch(&daemon, json!({"path": directory, "includeEntry": true}));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("changed");
    let answer = call(&daemon, "GetWatcherEvents", json!({"watcherId": id})).json();
    assert_eq!(describe(&answer["events"][0]), "CHMOD .");
    assert_eq!(answer["events"][0]["entry"]["path"], json!(directory));
}

#[test]
fn test_what_cannot_be_watched_says_why() {
    let daemon = Daemon::start();
    let file = daemon.directory.path().join("file");
    fs::write(&file, "").expect("written");
    for (path, code) in [(file.as_path(), "invalid_argument"), (Path::new("/nowhere"), "not_found")] {
        let answer = call(&daemon, "CreateWatcher", json!({"path": path}));
        assert_eq!(answer.json()["code"], code);
        let mut stream = daemon.stream("filesystem.Filesystem/WatchDir", &json!({"path": path}));
        assert_eq!(stream.status, 200);
        assert_eq!(stream.finish().error_code(), Some(code));
    }
}

#[test]
fn test_removed_watchers_are_unknown() {
    let daemon = Daemon::start();
    let id = watch(&daemon, json!({"path": daemon.directory.path()}));
    assert_eq!(call(&daemon, "RemoveWatcher", json!({"watcher_id": id})).json(), json!({}));
    for method in ["GetWatcherEvents", "RemoveWatcher"] {
        let answer = call(&daemon, method, json!({"watcherId": id}));
        assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("not_found")));
    }
}

#[test]
fn test_the_number_of_watchers_is_bounded_and_places_come_back() {
    let daemon = Daemon::start();
    let message = json!({"path": daemon.directory.path()});
    let mut ids = Vec::new();
    let refusal = loop {
        let answer = call(&daemon, "CreateWatcher", message.clone());
        match answer.json()["watcherId"].as_str() {
            Some(id) => ids.push(id.to_owned()),
            None => break answer,
        }
        assert!(ids.len() < 200, "there must be a bound");
    };
    assert_eq!((refusal.status, refusal.json()["code"].as_str()), (429, Some("resource_exhausted")));
    for id in ids {
        assert_eq!(call(&daemon, "RemoveWatcher", json!({"watcherId": id})).status, 200);
    }
    support::eventually("a place is free", || call(&daemon, "CreateWatcher", message.clone()).status == 200);
}

#[test]
fn test_lost_events_are_an_error_once_and_then_a_fresh_start() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir(&directory).expect("made");
    let id = watch(&daemon, json!({"path": directory}));
    // More than the daemon keeps and the kernel queues by default; alternating, so that none can be merged.
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
    let enough = limit.trim().parse::<usize>().expect("a number") + 6000;
    for number in 0..enough / 2 + 1 {
        let path = directory.join((number % 2).to_string());
        fs::write(&path, "").and_then(|()| fs::remove_file(&path)).expect("changed");
    }
    let mut answer = call(&daemon, "GetWatcherEvents", json!({"watcherId": id}));
    for _ in 0..20 {
        if answer.status != 200 {
            break;
        }
        answer = call(&daemon, "GetWatcherEvents", json!({"watcherId": id}));
    }
    assert_eq!((answer.status, answer.json()["code"].as_str()), (500, Some("data_loss")));
    fs::write(directory.join("after"), "").expect("written");
    assert_eq!(events(&daemon, &id), ["CREATE after"]);
}

fn next_message(stream: &mut Connection) -> Value {
    match stream.next_frame() {
        Some((0, message)) => message,
        other => panic!("expected a message, got {other:?}"),
    }
}

#[test]
fn test_a_stream_starts_at_once_and_tells_everything() {
    let daemon = Daemon::start();
    let directory = daemon.directory.path().join("watched");
    fs::create_dir(&directory).expect("made");
    let mut stream =
        daemon.stream("filesystem.Filesystem/WatchDir", &json!({"path": directory, "recursive": true}));
    assert_eq!(stream.header("content-type"), Some("application/connect+json"));
    assert_eq!(next_message(&mut stream), json!({"start": {}}));
    upload(&daemon, &directory.join("file"));
    for expected in ["CREATE file", "CHMOD file", "WRITE file"] {
        assert_eq!(describe(&next_message(&mut stream)["filesystem"]), expected);
    }
}

#[test]
fn test_a_silent_stream_is_kept_alive_until_its_time_is_over() {
    let daemon = Daemon::start();
    let message = json!({"path": daemon.directory.path()}).to_string();
    let headers = [("Keepalive-Ping-Interval", "1"), ("Connect-Timeout-Ms", "1500")];
    let frames = [support::frame(0, message.as_bytes())];
    let mut stream = daemon.stream_with("filesystem.Filesystem/WatchDir", &headers, &frames);
    assert_eq!(next_message(&mut stream), json!({"start": {}}));
    assert_eq!(next_message(&mut stream), json!({"keepalive": {}}));
    let Some((2, end)) = stream.next_frame() else { panic!("expected the end") };
    assert_eq!(end["error"]["code"], "deadline_exceeded");
}

#[test]
fn test_clients_that_go_away_free_their_places() {
    let daemon = Daemon::start();
    let message = json!({"path": daemon.directory.path()});
    for _ in 0..300 {
        let mut stream = daemon.stream("filesystem.Filesystem/WatchDir", &message);
        while stream.next_frame().is_some_and(|(flags, _)| flags == 2) {
            // The daemon has not noticed yet that the ones before are gone.
            stream = daemon.stream("filesystem.Filesystem/WatchDir", &message);
        }
    }
}

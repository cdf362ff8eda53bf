//! The control socket: who, what, how much, and again.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{json, Value};

use crate::support::{arguments, command, open_file, receive, send, wait_until, Daemon, Dice};

#[test]
fn test_verbs_may_be_repeated() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let writable = json!({ "directory": daemon.path("w0"), "size_bytes": 1 << 20 });
    let open = arguments("disk", &[], writable, "disk");
    let first = client.call("open", open.clone());
    assert_eq!(first, json!({ "path": daemon.file("disk"), "size_bytes": 1 << 20 }));
    assert_eq!(client.call("open", open.clone()), first);
    let mut other = open;
    other["owner"] = json!(1);
    assert_eq!(client.refuse("open", other), "other_arguments");
    let file = open_file(&daemon.file("disk"));
    let close = json!({ "name": "disk", "discard": true });
    assert_eq!(client.refuse("close", close.clone()), "image_in_use");
    drop(file);
    wait_until("the file is closed", || client.try_call("close", close.clone()).is_ok());
    assert_eq!(client.call("close", close), json!({ "was_open": false }));
    assert!(!daemon.path("w0").exists());
    assert_eq!(client.refuse("stat", json!({ "name": "disk" })), "unknown_image");
}

#[test]
fn test_a_forced_close_gives_errors_to_those_who_have_it_open() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(1 << 20));
    let file = open_file(&path);
    let close = json!({ "name": "disk", "discard": false, "force": true });
    daemon.client().call("close", close);
    let error = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 512], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    daemon.open_disk("disk", &[], "w0", None);
    assert!(std::os::unix::fs::FileExt::read_at(&file, &mut [0; 512], 0).is_err(), "it is another image now");
}

#[test]
fn test_many_requests_are_under_way_at_once() {
    let daemon = Daemon::start();
    let mut stream = UnixStream::connect(daemon.path("control")).unwrap();
    for id in 0..100_u64 {
        let writable = json!({ "directory": daemon.path(&format!("w{id}")), "size_bytes": 1 << 20 });
        let arguments = arguments(&format!("disk-{id}"), &[], writable, "disk");
        let request = json!({ "version": 1, "id": id, "verb": "open", "arguments": arguments });
        send(&mut stream, request.to_string().as_bytes()).unwrap();
    }
    let mut ids: Vec<u64> = (0..100)
        .map(|_| {
            let answer = receive(&mut stream).unwrap();
            assert_eq!(answer["error"], Value::Null);
            answer["id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    let rest = daemon.client().call("list", json!({ "behind": "disk-97" }));
    let names: Vec<&Value> = rest["images"].as_array().unwrap().iter().map(|image| &image["name"]).collect();
    assert_eq!((names, &rest["next"]), (vec![&json!("disk-98"), &json!("disk-99")], &Value::Null));
}

#[test]
fn test_noise_ends_one_connection_and_nothing_else() {
    let daemon = Daemon::start();
    let mut dice = Dice::new(8);
    for _ in 0..50 {
        let mut stream = UnixStream::connect(daemon.path("control")).unwrap();
        let length = dice.below(300) as usize;
        let noise = dice.bytes(length);
        let framed = dice.below(2) == 0;
        if framed {
            send(&mut stream, &noise).unwrap();
            assert_eq!(receive(&mut stream).unwrap()["error"]["code"], json!("malformed_request"));
        } else {
            let _ = stream.write_all(&noise);
        }
    }
    let mut stream = UnixStream::connect(daemon.path("control")).unwrap();
    stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "a frame without bounds ends the connection");
    daemon.client().call("list", json!({}));
}

#[test]
fn test_other_users_are_not_heard() {
    let daemon = Daemon::start();
    let socket = daemon.path("control");
    // Even where the file system would let them in.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(daemon.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let script = "import socket,sys\n\
        peer = socket.socket(socket.AF_UNIX)\n\
        peer.connect(sys.argv[1])\n\
        try:\n    peer.sendall(b'\\0\\0\\0\\2{}')\n    got = peer.recv(1)\n\
        except (BrokenPipeError, ConnectionResetError):\n    got = b''\n\
        sys.exit(len(got))";
    let status = Command::new("python3").args(["-c", script]).arg(&socket).uid(65_534).status().unwrap();
    assert!(status.success(), "another user got an answer");
    assert!(daemon.log().contains("connection_refused"));
}

#[test]
fn test_a_second_start_says_that_the_first_one_runs() {
    let mut daemon = Daemon::start();
    let output = command(daemon.scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("already serves"));

    daemon.open_disk("disk", &[], "w0", Some(1 << 20));
    let mut client = daemon.client();
    assert_eq!(client.refuse("shutdown", json!({})), "images_open");
    client.call("close", json!({ "name": "disk", "discard": true }));
    client.call("shutdown", json!({}));
    wait_until("the program has ended", || daemon.has_ended());
    assert!(!daemon.path("control").exists());
}

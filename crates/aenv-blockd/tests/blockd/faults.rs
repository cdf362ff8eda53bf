//! What goes wrong around the daemon: full disks, damaged tables and layers, files that are not what they should be.

use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::json;

use crate::support::{arguments, command, open_file, read_all, run, wait_until, Daemon, Dice};

#[test]
fn test_a_full_disk_is_an_error_of_the_guest_and_not_the_end() {
    let daemon = Daemon::start();
    let small = daemon.path("small");
    std::fs::create_dir(&small).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&small));
    let path = daemon.open_disk("disk", &[], "small/w0", Some(64 << 20));
    let file = open_file(&path);
    let bytes = Dice::new(1).bytes(64 << 10);
    let mut at = 0;
    let error = loop {
        match file.write_all_at(&bytes, at) {
            Ok(()) => at += bytes.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(at > 3 << 20, "only {at} bytes were written");
    for offset in (0..at).step_by(bytes.len()) {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, offset).unwrap();
        assert!(found == bytes, "what was acknowledged is there");
    }
    file.write_all_at(&bytes, 0).unwrap();
    run(Command::new("mount").args(["-o", "remount,size=16m"]).arg(&small));
    file.write_all_at(&bytes, at).unwrap();
    file.sync_data().unwrap();
    drop(file);
    daemon.client().call("close", json!({ "name": "disk", "discard": true }));
    run(Command::new("umount").arg(&small));
}

#[test]
fn test_a_damaged_table_is_refused_with_its_place() {
    let mut daemon = Daemon::start();
    for number in 0..3 {
        daemon.open_disk(&format!("disk-{number}"), &[], &format!("w{number}"), Some(1 << 20));
    }
    daemon.kill_all();
    let table = daemon.path("state/table");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[30] ^= 0xff;
    std::fs::write(&table, &bytes).unwrap();
    let output = command(daemon.scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("damaged at byte 8"), "{said}");
    assert!(!is_mounted(&daemon), "a refused start leaves no mount");
    bytes[30] ^= 0xff;
    std::fs::write(&table, &bytes).unwrap();
    daemon.start_again();
    let images = daemon.client().call("list", json!({}));
    assert_eq!(images["images"].as_array().unwrap().len(), 3);
}

#[test]
fn test_an_image_whose_layer_vanished_does_not_hold_up_others() {
    let daemon = Daemon::start();
    let disk = daemon.open_disk("good", &[], "w0", Some(1 << 20));
    open_file(&disk).write_all_at(&[5; 4096], 0).unwrap();
    let layer = daemon.seal("good", "layer", "w1");
    let copy = daemon.path("copy");
    std::fs::copy(&layer, &copy).unwrap();
    daemon.open_memory("bad", &[&copy]);
    std::fs::remove_file(&copy).unwrap();
    daemon.kill_server();
    let mut client = daemon.client();
    wait_until("the image is looked at", || {
        client.call("stat", json!({ "name": "bad" }))["state"] == json!("unreadable")
    });
    assert_eq!(read_all(&disk)[..4096], [5; 4096]);
    let error = std::fs::read(daemon.file("bad")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert_eq!(client.call("close", json!({ "name": "bad", "discard": false }))["was_open"], json!(true));
}

#[test]
fn test_what_is_no_layer_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let noise = daemon.path("noise");
    std::fs::write(&noise, Dice::new(4).bytes(100_000)).unwrap();
    let pipe = daemon.path("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    let disk = daemon.open_disk("disk", &[], "w0", Some(1 << 20));
    for (path, code) in [
        (&noise, "layer_corrupt"),
        (&pipe, "invalid_argument"),
        (&daemon.path("absent"), "missing_file"),
        (&daemon.path("state"), "invalid_argument"),
        (&disk, "invalid_argument"),
        (&daemon.path("state/../noise"), "invalid_argument"),
    ] {
        let refused = client.refuse("open", arguments("image", &[path], json!(null), "memory"));
        assert_eq!(refused, code, "{}", path.display());
    }
    let writable = json!({ "directory": daemon.path("w0") });
    let refused = client.refuse("open", arguments("other", &[], writable, "disk"));
    assert_eq!(refused, "directory_in_use");
    assert_eq!(client.refuse("open", arguments("image", &[], json!(null), "disk")), "invalid_argument");
    assert_eq!(client.call("list", json!({}))["images"].as_array().unwrap().len(), 1);
}

#[test]
fn test_another_mount_is_never_touched() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let point = scratch.path().join("mount");
    std::fs::create_dir(&point).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&point));
    std::fs::write(point.join("file"), "mine").unwrap();
    let output = command(scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("something else is mounted"));
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"mine");
    run(Command::new("umount").arg(&point));
}

fn is_mounted(daemon: &Daemon) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(daemon.path("mount").to_str().unwrap())
}

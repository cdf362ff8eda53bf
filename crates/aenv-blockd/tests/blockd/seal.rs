//! Sealing: repeated orders, deaths at any moment, other file systems, full ones.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{kill, open_file, read_all, run, Daemon, Dice};

const SIZE: u64 = 4 << 20;

#[test]
fn test_a_seal_may_be_ordered_again_and_not_otherwise() {
    let daemon = Daemon::start();
    daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let mut client = daemon.client();
    let order = json!({
        "name": "disk", "seal_id": "s", "sealed_path": daemon.path("s"), "next_directory": daemon.path("w1"),
    });
    let first = client.call("seal", order.clone());
    assert_eq!(client.call("seal", order.clone()), first);
    let mut other = order.clone();
    other["sealed_path"] = json!(daemon.path("elsewhere"));
    assert_eq!(client.refuse("seal", other), "invalid_argument");
    let asked = json!({ "name": "disk", "seal_id": "s", "digest": true });
    let sealed = client.call("sealed", asked.clone());
    assert!(sealed["digest"].as_str().unwrap().starts_with("sha256:"));
    daemon.kill_server();
    assert_eq!(client.call("sealed", asked), sealed, "the next server knows it too");
    assert_eq!(client.call("seal", order)["frozen_microseconds"], json!(0));
    assert_eq!(client.refuse("sealed", json!({ "name": "disk", "seal_id": "t" })), "unknown_seal");
    let taken = json!({
        "name": "disk", "seal_id": "t", "sealed_path": daemon.path("s"), "next_directory": daemon.path("w2"),
    });
    assert_eq!(client.refuse("seal", taken), "path_exists");
    assert!(!daemon.path("w2").exists() && !daemon.path("w0").exists());
}

#[test]
fn test_death_at_any_moment_of_a_seal_loses_nothing() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let mut model = vec![0; SIZE as usize];
    let mut dice = Dice::new(77);
    let mut at_seal = Vec::new();
    for number in 1..=40 {
        let file = open_file(&path);
        for _ in 0..20 {
            let at = dice.below(SIZE / 512) * 512;
            let length = (512 * (1 + dice.below(64))).min(SIZE - at);
            let bytes = dice.bytes(length as usize);
            file.write_all_at(&bytes, at).unwrap();
            model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        drop(file);
        let pid = daemon.server_pid();
        let pause = Duration::from_micros(dice.below(6000));
        let killer = thread::spawn(move || {
            thread::sleep(pause);
            kill(pid);
        });
        daemon.seal("disk", &format!("layer-{number}"), &format!("w{number}"));
        killer.join().unwrap();
        at_seal.push(model.clone());
        assert!(read_all(&path) == model, "after seal {number}");
    }
    let layers: Vec<_> = (1..=40).map(|number| daemon.path(&format!("layer-{number}"))).collect();
    for number in [0, 19, 39] {
        let below: Vec<&Path> = layers[..=number].iter().map(AsRef::as_ref).collect();
        let image = daemon.open_memory(&format!("at-{number}"), &below);
        assert!(read_all(&image) == at_seal[number], "the layers up to {number}");
    }
    let left: Vec<_> = std::fs::read_dir(daemon.scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('w'))
        .collect();
    assert_eq!(left, ["w40"], "directories of sealed layers are gone");
}

#[test]
fn test_a_seal_to_a_full_file_system_succeeds_once_there_is_room() {
    let daemon = Daemon::start();
    let small = daemon.path("small");
    std::fs::create_dir(&small).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&small));
    let _unmount = Unmount(small.clone());
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let bytes = Dice::new(3).bytes(1 << 20);
    open_file(&path).write_all_at(&bytes, 0).unwrap();
    std::fs::write(small.join("filler"), vec![1; 3 << 19]).unwrap();
    let mut client = daemon.client();
    let order = json!({
        "name": "disk", "seal_id": "s", "sealed_path": small.join("layer"), "next_directory": daemon.path("w1"),
    });
    client.call("seal", order);
    assert_eq!(client.refuse("sealed", json!({ "name": "disk", "seal_id": "s" })), "no_space");
    open_file(&path).write_all_at(&bytes[..4096], 2 << 20).unwrap();
    assert!(read_all(&path)[..1 << 20] == bytes, "the disk goes on meanwhile");
    std::fs::remove_file(small.join("filler")).unwrap();
    client.call("sealed", json!({ "name": "disk", "seal_id": "s" }));
    assert!(small.join("layer").exists() && !small.join("layer.part").exists());
    assert!(read_all(&path)[..1 << 20] == bytes);
    client.call("close", json!({ "name": "disk", "discard": true }));
}

/// Takes a mount of a test away, whatever becomes of the test.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

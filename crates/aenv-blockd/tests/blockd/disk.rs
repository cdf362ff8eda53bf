//! Disks as files: equal to a plain file under any use.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{fallocate, FallocateFlags};
use nix::unistd::{lseek, Whence};
use serde_json::json;

use crate::support::{open_file, read_all, run, Daemon, Dice};

const SIZE: u64 = 8 << 20;

/// A disk and the bytes that it should have.
struct Twin {
    file: File,
    model: Vec<u8>,
    dice: Dice,
}

impl Twin {
    fn step(&mut self) {
        let length = match self.dice.below(4) {
            0 => 1 + self.dice.below(2000),
            1 => 512 * (1 + self.dice.below(64)),
            2 => 4096 * (1 + self.dice.below(64)),
            _ => 1 + self.dice.below(1 << 20),
        };
        let unit = [1, 512, 4096][self.dice.below(3) as usize];
        let offset = self.dice.below(SIZE) / unit * unit;
        let length = length.min(SIZE - offset);
        let range = offset as usize..(offset + length) as usize;
        match self.dice.below(10) {
            0..=4 => {
                let bytes = self.dice.bytes(length as usize);
                self.file.write_all_at(&bytes, offset).unwrap();
                self.model[range].copy_from_slice(&bytes);
            }
            5 => {
                let mode = match self.dice.below(2) {
                    0 => FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
                    _ => FallocateFlags::FALLOC_FL_ZERO_RANGE,
                };
                fallocate(&self.file, mode, offset as i64, length as i64).unwrap();
                self.model[range].fill(0);
            }
            6 => self.file.sync_data().unwrap(),
            _ => {
                let mut bytes = vec![0; length as usize];
                self.file.read_exact_at(&mut bytes, offset).unwrap();
                assert!(bytes == self.model[range], "{length} bytes at {offset} differ");
            }
        }
    }
}

#[test]
fn test_random_operations_leave_what_they_leave_in_a_plain_file() {
    let daemon = Daemon::start();
    for (seed, overwrite) in [(1, "in_place"), (2, "append")] {
        let name = format!("disk-{seed}");
        let writable = |number: u64| daemon.path(&format!("{name}-{number}"));
        let first = json!({ "directory": writable(0), "size_bytes": SIZE, "overwrite": overwrite });
        let mut client = daemon.client();
        client.call(
            "open",
            json!({ "name": name, "layers": [], "writable": first, "use": "disk", "owner": 0 }),
        );
        let path = daemon.file(&name);
        let mut twin = Twin { file: open_file(&path), model: vec![0; SIZE as usize], dice: Dice::new(seed) };
        for round in 1..8 {
            (0..150).for_each(|_| twin.step());
            let order = json!({
                "name": name,
                "seal_id": format!("{name}-seal-{round}"),
                "sealed_path": daemon.path(&format!("{name}-layer-{round}")),
                "next_directory": writable(round),
            });
            client.call("seal", order);
        }
        assert!(read_all(&path) == twin.model, "the whole differs");
        drop(twin.file);
        client.call("close", json!({ "name": name, "discard": false }));
    }
}

#[test]
fn test_restacking_under_readers_and_writers_changes_nothing() {
    const WRITERS: u64 = 4;
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let is_over = AtomicBool::new(false);
    let span = SIZE / WRITERS;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (path, is_over) = (&path, &is_over);
            scope.spawn(move || {
                let file = open_file(path);
                let mut dice = Dice::new(writer + 10);
                let mut model = vec![0; span as usize];
                while !is_over.load(Ordering::Relaxed) {
                    let at = dice.below(span / 4096) * 4096;
                    let bytes = dice.bytes(4096);
                    file.write_all_at(&bytes, writer * span + at).unwrap();
                    model[at as usize..at as usize + 4096].copy_from_slice(&bytes);
                    let at = dice.below(span / 4096) * 4096;
                    let mut found = [0; 4096];
                    file.read_exact_at(&mut found, writer * span + at).unwrap();
                    assert!(found == model[at as usize..at as usize + 4096], "bytes changed at {at}");
                }
                let mut found = vec![0; span as usize];
                file.read_exact_at(&mut found, writer * span).unwrap();
                assert!(found == model);
            });
        }
        for number in 1..=30 {
            daemon.seal("disk", &format!("layer-{number}"), &format!("w{number}"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let stat = daemon.client().call("stat", json!({ "name": "disk" }));
    assert_eq!(stat["layers"].as_array().unwrap().len(), 30);
    assert_eq!(stat["frozen"], json!([]));
}

#[test]
fn test_a_file_system_on_a_loop_device_is_clean() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(128 << 20));
    run(Command::new("mkfs.ext4").arg("-q").arg(&path));
    let point = daemon.path("point");
    std::fs::create_dir(&point).unwrap();
    for round in 0..2 {
        run(Command::new("mount").args(["-o", "loop,discard"]).arg(&path).arg(&point));
        fill(&point, round);
        daemon.seal("disk", &format!("layer-{round}"), &format!("w{}", round + 1));
        fill(&point, round + 10);
        run(Command::new("umount").arg(&point));
        run(Command::new("e2fsck").args(["-fn"]).arg(&path));
    }
    let layers = [daemon.path("layer-0"), daemon.path("layer-1")];
    let layers: Vec<&Path> = layers.iter().map(AsRef::as_ref).collect();
    daemon.open_disk("copy", &layers, "copy-w", None);
    // A crash image: the journal makes it whole.
    let status = Command::new("e2fsck").args(["-fp"]).arg(daemon.file("copy")).status().unwrap();
    assert!(status.code().is_some_and(|code| code < 2), "{status}");
}

fn fill(point: &Path, round: u64) {
    let mut dice = Dice::new(round + 1);
    for number in 0..100 {
        let length = dice.below(100_000) as usize;
        std::fs::write(point.join(format!("{round}-{number}")), dice.bytes(length)).unwrap();
        if number % 3 == 0 {
            std::fs::remove_file(point.join(format!("{round}-{number}"))).unwrap();
        }
    }
}

#[test]
fn test_ends_and_holes_are_those_of_a_disk() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    file.write_all_at(&[7; 4096], 1 << 20).unwrap();
    assert_eq!(file.read_at(&mut [0; 100], SIZE).unwrap(), 0);
    assert_eq!(file.read_at(&mut [0; 100], SIZE - 10).unwrap(), 10);
    let behind = file.write_all_at(&[1; 4096], SIZE - 10).unwrap_err();
    assert_eq!(behind.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.set_len(4096).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(lseek(file.as_fd(), 0, Whence::SeekData).unwrap(), 1 << 20);
    assert_eq!(lseek(file.as_fd(), 1 << 20, Whence::SeekHole).unwrap(), (1 << 20) + 4096);
    assert_eq!(lseek(file.as_fd(), 2 << 20, Whence::SeekData), Err(nix::errno::Errno::ENXIO));

    daemon.client().call("resize", json!({ "name": "disk", "size_bytes": 2 * SIZE }));
    assert_eq!(file.metadata().unwrap().len(), 2 * SIZE);
    file.write_all_at(&[9; 4096], 2 * SIZE - 4096).unwrap();
    let code = daemon.client().refuse("resize", json!({ "name": "disk", "size_bytes": SIZE }));
    assert_eq!(code, "cannot_shrink");
}

#[test]
fn test_exports_show_what_the_disk_shows() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let mut dice = Dice::new(5);
    let file = open_file(&path);
    file.write_all_at(&dice.bytes(1 << 20), 0).unwrap();
    let base = daemon.seal("disk", "base", "w1");
    file.write_all_at(&dice.bytes(1 << 20), 512 << 10).unwrap();
    let mut client = daemon.client();
    for (name, compression, flatten) in
        [("flat", json!(null), true), ("packed", json!("lz4"), true), ("top", json!(null), false)]
    {
        let order = json!({ "name": "disk", "path": daemon.path(name), "compression": compression, "flatten": flatten });
        let done = client.call("export", order);
        let length = daemon.path(name).metadata().unwrap().len();
        assert_eq!(done["size_bytes"], json!(length));
        let output = run(Command::new("sha256sum").arg(daemon.path(name)));
        let hex = String::from_utf8_lossy(&output.stdout[..64]).into_owned();
        assert_eq!(done["digest"], json!(format!("sha256:{hex}")));
    }
    let expected = read_all(&path);
    let (flat, packed, top) = (daemon.path("flat"), daemon.path("packed"), daemon.path("top"));
    for (name, layers) in
        [("a", vec![flat.as_path()]), ("b", vec![packed.as_path()]), ("c", vec![base.as_path(), &top])]
    {
        let copy = daemon.open_memory(name, &layers);
        assert!(read_all(&copy) == expected, "{name}");
    }
}

#[test]
fn test_a_plain_file_is_read_by_the_kernel_and_never_written() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let content = Dice::new(12).bytes(1 << 20);
    open_file(&path).write_all_at(&content, 3 << 20).unwrap();
    let plain = daemon.path("plain");
    let mut client = daemon.client();
    let order = json!({ "name": "disk", "path": plain, "compression": null, "flatten": true, "plain": true });
    client.call("export", order);
    assert!(read_all(&plain) == read_all(&path));
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&plain.metadata().unwrap()) * 512 < 2 << 20,
        "holes stay holes"
    );

    let open = |name: &str, purpose: &str| json!({ "name": name, "layers": [], "writable": null, "plain": plain, "use": purpose, "owner": 0 });
    client.call("open", open("image", "disk"));
    let image = daemon.file("image");
    let first = File::open(&image).unwrap();
    let check = |file: &File| {
        let mut found = vec![0; 1 << 20];
        file.read_exact_at(&mut found, 3 << 20).unwrap();
        assert!(found == content);
    };
    check(&first);
    let passes = client.call("hello", json!({}))["passthrough"] == json!(true);
    let reads = client.call("stat", json!({ "name": "image" }))["counters"]["reads"].as_u64().unwrap();
    assert_eq!(reads == 0, passes, "the kernel reads by itself where it can");
    assert_eq!(File::options().write(true).open(&image).unwrap_err().raw_os_error(), Some(libc::EROFS));

    daemon.kill_server();
    check(&File::open(&image).unwrap());
    check(&first);
    drop(first);
    client.call("close", json!({ "name": "image", "discard": false }));

    // Memory is opened for writing as well, so that the kernel must not have the file.
    client.call("open", open("memory", "memory"));
    let memory = open_file(&daemon.file("memory"));
    check(&memory);
    assert!(memory.write_all_at(&[1; 512], 0).is_err());
    assert!(read_all(&plain) == read_all(&path));
}

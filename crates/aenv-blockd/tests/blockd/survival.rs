//! Death of the server and of the supervisor under load: a pause, never an error, never a wrong byte.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{open_file, read_all, wait_until, Daemon, Dice};

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;

/// A buffer that O_DIRECT accepts.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let shift = memory.as_ptr().align_offset(BLOCK);
    &mut memory[shift..shift + BLOCK]
}

/// Writes and reads back blocks of its own part of the disk until told to stop, and checks all of them at the end.
fn verify(path: &Path, part: u64, parts: u64, is_over: &AtomicBool, done: &AtomicU64) {
    let flags = if part % 2 == 0 { libc::O_DIRECT } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap();
    let blocks = SIZE / BLOCK as u64 / parts;
    let mut stamps = vec![0_u64; blocks as usize];
    let mut dice = Dice::new(part + 100);
    let mut memory = vec![0; 2 * BLOCK];
    let buffer = aligned(&mut memory);
    let offset = |block: u64| (part * blocks + block) * BLOCK as u64;
    let mut stamp = 1;
    while !is_over.load(Ordering::Relaxed) {
        let block = dice.below(blocks);
        fill(buffer, part, block, stamp);
        file.write_all_at(buffer, offset(block)).unwrap();
        stamps[block as usize] = stamp;
        stamp += 1;
        check(&file, buffer, part, dice.below(blocks), offset, &stamps);
        if dice.below(200) == 0 {
            file.sync_data().unwrap();
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    (0..blocks).for_each(|block| check(&file, buffer, part, block, offset, &stamps));
}

fn fill(buffer: &mut [u8], part: u64, block: u64, stamp: u64) {
    for (number, word) in (0_u64..).zip(buffer.chunks_exact_mut(8)) {
        let value = if stamp == 0 { 0 } else { stamp << 32 ^ part << 28 ^ block << 10 ^ number };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn check(file: &File, buffer: &mut [u8], part: u64, block: u64, offset: impl Fn(u64) -> u64, stamps: &[u64]) {
    file.read_exact_at(buffer, offset(block)).unwrap();
    let found = buffer.to_vec();
    fill(buffer, part, block, stamps[block as usize]);
    assert!(found == buffer, "block {block} of part {part} is not what was written");
}

#[test]
fn test_killing_the_server_under_load_is_a_pause() {
    const PARTS: u64 = 6;
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let source = daemon.open_disk("source", &[], "source-w0", Some(SIZE));
    let content = Dice::new(1).bytes(SIZE as usize);
    open_file(&source).write_all_at(&content, 0).unwrap();
    let layer = daemon.seal("source", "layer", "source-w1");
    let memory = daemon.open_memory("memory", &[&layer]);

    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for part in 0..PARTS {
            let (path, is_over, done) = (&path, &is_over, &done);
            scope.spawn(move || verify(path, part, PARTS, is_over, done));
        }
        let (memory, content, is_over) = (&memory, &content, &is_over);
        scope.spawn(move || read_memory(memory, content, is_over));
        let mut dice = Dice::new(55);
        for round in 0..25 {
            let before = done.load(Ordering::Relaxed);
            daemon.kill_server();
            wait_until("work goes on", || done.load(Ordering::Relaxed) > before + PARTS * 4);
            if round % 5 == 4 {
                daemon.seal("disk", &format!("layer-{round}"), &format!("w{round}"));
            }
            thread::sleep(Duration::from_millis(dice.below(40)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut client = daemon.client();
    for name in ["disk", "memory", "source"] {
        let close = json!({ "name": name, "discard": false });
        wait_until("nobody has it open", || client.try_call("close", close.clone()).is_ok());
    }
}

/// Reads what cannot be cached, because the kernel is told to forget it.
fn read_memory(path: &Path, content: &[u8], is_over: &AtomicBool) {
    let file = File::open(path).unwrap();
    let mut dice = Dice::new(3);
    let mut found = vec![0; 128 << 10];
    while !is_over.load(Ordering::Relaxed) {
        let at = dice.below(SIZE - found.len() as u64);
        file.read_exact_at(&mut found, at).unwrap();
        assert!(found == content[at as usize..][..found.len()], "memory differs at {at}");
        nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }
}

#[test]
fn test_the_next_server_knows_who_has_files_open() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    daemon.kill_server();
    let mut client = daemon.client();
    let close = json!({ "name": "disk", "discard": false });
    assert_eq!(client.refuse("close", close.clone()), "image_in_use");
    file.write_all_at(&[1; BLOCK], 0).unwrap();
    drop(file);
    wait_until("nobody has it open", || client.try_call("close", close.clone()).is_ok());
}

#[test]
fn test_a_server_is_replaced_without_a_break() {
    let daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    let before = daemon.server_pid();
    daemon.client().call("shutdown", json!({ "keep": true }));
    let mut found = [0; BLOCK];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [7; BLOCK]);
    wait_until("another server answers", || daemon.server_pid() != before);
}

#[test]
fn test_a_server_whose_supervisor_died_gets_another() {
    let mut daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    for round in 0..3 {
        let (server, before) = (daemon.server_pid(), daemon.listener_pid());
        if round == 0 {
            daemon.kill_supervisor();
        } else {
            crate::support::kill(before);
        }
        wait_until("another supervisor listens", || ![before, server].contains(&daemon.listener_pid()));
        assert_eq!(daemon.server_pid(), server, "the server goes on");
        daemon.kill_server();
        let mut found = [0; BLOCK];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [7; BLOCK]);
    }
    drop(file);
    let mut client = daemon.client();
    client.call("close", json!({ "name": "disk", "discard": true }));
    client.call("shutdown", json!({}));
    wait_until("all have ended", || daemon.processes().is_empty());
    assert!(!daemon.path("state/mount.json").exists());
}

#[test]
fn test_after_the_death_of_both_the_next_start_cleans_up_and_goes_on() {
    let mut daemon = Daemon::start();
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    daemon.kill_all();
    assert!(file.read_at(&mut [0; BLOCK], 0).is_err(), "the mount is dead");
    daemon.start_again();
    assert!(daemon.log().contains("dead_mount_removed"));
    assert_eq!(read_all(&path)[..BLOCK], [7; BLOCK]);
    let stat = daemon.client().call("stat", json!({ "name": "disk" }));
    assert_eq!(stat["users"], json!(0), "who had the dead mount open is no user of this one");
}

#[test]
fn test_without_resend_the_mount_is_made_anew() {
    let daemon = Daemon::start_with(&["--no-resend"]);
    let path = daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let file = open_file(&path);
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    daemon.kill_server();
    wait_until("the image is there again", || {
        File::open(&path).is_ok_and(|file| file.read_exact_at(&mut [0; BLOCK], 0).is_ok())
    });
    assert_eq!(read_all(&path)[..BLOCK], [7; BLOCK]);
    let error = file.read_at(&mut [0; BLOCK], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "old users are told");
}

#[test]
fn test_a_polite_end_waits_for_images_to_be_closed() {
    let mut daemon = Daemon::start();
    daemon.open_disk("disk", &[], "w0", Some(SIZE));
    let supervisor = Pid::from_raw(daemon.supervisor_pid());
    signal::kill(supervisor, Signal::SIGTERM).unwrap();
    wait_until("the end is refused", || daemon.log().contains("end_refused"));
    daemon.client().call("close", json!({ "name": "disk", "discard": true }));
    signal::kill(supervisor, Signal::SIGTERM).unwrap();
    wait_until("the program has ended", || daemon.has_ended());
}

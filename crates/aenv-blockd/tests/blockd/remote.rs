//! Layers of a registry: read by range through the block cache, and stuck ones that hold up nobody else.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{json, Value};

use crate::support::{open_file, read_all, run, wait_until, Daemon, Dice};

const SIZE: u64 = 4 << 20;

/// Serves one blob by range to whoever asks, when it is not stuck.
struct Registry {
    address: String,
    is_stuck: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
}

impl Registry {
    fn start(blob: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v2/library/test", listener.local_addr().unwrap());
        let (is_stuck, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let blob = Arc::new(blob);
        let shared = (Arc::clone(&is_stuck), Arc::clone(&served));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (blob, (is_stuck, served)) = (Arc::clone(&blob), shared.clone());
                thread::spawn(move || while answer(stream.as_ref().unwrap(), &blob, &is_stuck, &served) {});
            }
        });
        Self { address, is_stuck, served }
    }
}

/// Answers one request; false when there is none any more.
fn answer(stream: &TcpStream, blob: &[u8], is_stuck: &AtomicBool, served: &AtomicU64) -> bool {
    let mut range = 0..blob.len();
    let mut is_request = false;
    for line in BufReader::with_capacity(1, stream).lines() {
        let Ok(line) = line else { return false };
        if line.is_empty() {
            is_request = true;
            break;
        }
        if let Some(bytes) = line.to_lowercase().strip_prefix("range: bytes=") {
            let (first, last) = bytes.split_once('-').unwrap();
            range = first.parse().unwrap()..(last.parse::<usize>().unwrap() + 1).min(blob.len());
        }
    }
    if !is_request {
        return false;
    }
    while is_stuck.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
        range.len(),
        range.start,
        range.end - 1,
        blob.len()
    );
    served.fetch_add(range.len() as u64, Ordering::Relaxed);
    let mut stream = stream;
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&blob[range]).is_ok()
}

fn digest_of(path: &std::path::Path) -> String {
    let output = run(Command::new("sha256sum").arg(path));
    format!("sha256:{}", String::from_utf8_lossy(&output.stdout[..64]))
}

/// A disk with random content, exported as a registry has it, and what opens it from there.
fn publish(daemon: &Daemon, content: &[u8]) -> (Registry, Value) {
    let disk = daemon.open_disk("source", &[], "source-w0", Some(SIZE));
    open_file(&disk).write_all_at(content, 0).unwrap();
    let blob = daemon.path("blob");
    let order = json!({ "name": "source", "path": blob, "compression": "lz4", "flatten": true });
    daemon.client().call("export", order);
    let registry = Registry::start(std::fs::read(&blob).unwrap());
    let layer = json!({
        "kind": "registry",
        "repository": registry.address,
        "digest": digest_of(&blob),
        "size_bytes": blob.metadata().unwrap().len(),
        "credentials_path": null,
    });
    (registry, layer)
}

#[test]
fn test_a_remote_layer_is_fetched_once_and_where_it_is_touched() {
    let cache = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = cache.path().join("cache");
    let options = ["--cache", directory.to_str().unwrap(), "--cache-bytes", "1000000000"];
    let daemon = Daemon::start_with(&options);
    let content = Dice::new(6).bytes(SIZE as usize);
    let (registry, layer) = publish(&daemon, &content);
    let mut client = daemon.client();
    let open = |name: &str| json!({ "name": name, "layers": [layer], "writable": null, "use": "memory", "owner": 0 });
    client.call("open", open("one"));
    let file = File::open(daemon.file("one")).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 2 << 20).unwrap();
    assert!(page == content[2 << 20..][..4096]);
    let touched = registry.served.load(Ordering::Relaxed);
    assert!(touched < SIZE, "{touched} bytes were fetched for one page");
    assert!(read_all(&daemon.file("one")) == content);
    let all = registry.served.load(Ordering::Relaxed);
    assert!(all < 2 * SIZE, "{all} bytes were fetched for {SIZE}");
    client.call("open", open("two"));
    assert!(read_all(&daemon.file("two")) == content);
    assert_eq!(registry.served.load(Ordering::Relaxed), all, "the second image comes from the cache");
    let cache = client.call("list", json!({}))["cache"].clone();
    assert!(cache["used_bytes"].as_u64().unwrap() > 0, "{cache}");
}

#[test]
fn test_a_stuck_source_holds_up_its_own_image_only() {
    let daemon = Daemon::start();
    let content = Dice::new(7).bytes(SIZE as usize);
    let (registry, layer) = publish(&daemon, &content);
    let writable = json!({ "directory": daemon.path("far-w0") });
    let mut client = daemon.client();
    client.call(
        "open",
        json!({ "name": "far", "layers": [layer], "writable": writable, "use": "disk", "owner": 0 }),
    );
    let near = daemon.open_disk("near", &[], "near-w0", Some(SIZE));
    let far = daemon.file("far");
    registry.is_stuck.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        for reader in 0..40 {
            let (far, content) = (&far, &content);
            scope.spawn(move || {
                let mut page = [0; 4096];
                open_file(far).read_exact_at(&mut page, reader * 65536).unwrap();
                assert!(page == content[reader as usize * 65536..][..4096]);
            });
        }
        wait_until("readers wait", || {
            client.call("stat", json!({ "name": "far" }))["users"].as_u64() == Some(40)
        });
        for round in 0..2 {
            let file = open_file(&near);
            file.write_all_at(&[round; 4096], 0).unwrap();
            file.sync_all().unwrap();
            daemon.seal("near", &format!("near-{round}"), &format!("near-w{}", round + 1));
            assert_eq!(read_all(&near)[..4096], [round; 4096]);
            // The far image is waited for by all of its readers, and put together again by a new server.
            daemon.kill_server();
        }
        registry.is_stuck.store(false, Ordering::Relaxed);
    });
    assert!(read_all(&far) == content);
}

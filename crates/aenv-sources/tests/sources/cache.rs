//! The cache in a real directory, with real deaths of real processes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use aenv_sources::{SourceError, SourceFactory, SourceOptions};

use crate::server::{Reply, Server};
use crate::support::{cached, cannot_test, content, digest, read, registry};

const CHUNK: usize = 4096;

fn serving(bytes: &[u8]) -> Server {
    let served = bytes.to_vec();
    Server::start(move |request| Reply::range(request, &served))
}

/// What the data files of a cache take on the disk.
fn allocated(directory: &Path) -> u64 {
    let blobs = std::fs::read_dir(directory).unwrap().map(|item| item.unwrap().path().join("data"));
    blobs.filter_map(|path| path.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn what_was_read_once_needs_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let bytes = content(10 * CHUNK + 99);
    let server = serving(&bytes);
    let reference = registry(&server.url(), &bytes, None);
    for _ in 0..2 {
        let factory = cached(&root, 1 << 20);
        let source = factory.open(&reference).unwrap();
        assert_eq!(read(&source, 5000, 20_000).unwrap(), bytes[5000..25_000]);
        assert_eq!(server.count(), 1, "later lives read from the directory");
    }
    assert_eq!(root.metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn repositories_share_blobs_by_digest() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(CHUNK);
    let (first, second) = (serving(&bytes), serving(&bytes));
    let factory = cached(directory.path(), 1 << 20);
    for server in [&first, &second] {
        let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
        assert_eq!(read(&source, 0, CHUNK).unwrap(), bytes);
    }
    assert_eq!((first.count(), second.count()), (1, 0));
}

#[test]
fn a_directory_belongs_to_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(CHUNK);
    let server = serving(&bytes);
    let factory = cached(directory.path(), 1 << 20);
    let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
    let again = || {
        let cache = aenv_sources::CacheOptions::new(directory.path().to_owned(), 1 << 20);
        SourceFactory::new(SourceOptions { cache: Some(cache), ..SourceOptions::default() })
    };
    assert!(matches!(again().err(), Some(SourceError::CacheInUse { .. })));
    drop(factory);
    assert!(matches!(again().err(), Some(SourceError::CacheInUse { .. })), "a source still writes there");
    drop(source);
    again().unwrap();
}

#[test]
fn the_limit_holds_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(100 * CHUNK);
    let server = serving(&bytes);
    let capacity = 20 * CHUNK as u64;
    let factory = cached(directory.path(), capacity);
    let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
    for chunk in 0..100 {
        let at = chunk * CHUNK;
        assert_eq!(read(&source, at, CHUNK).unwrap(), bytes[at..at + CHUNK]);
        assert!(factory.statistics().used_bytes <= capacity);
        factory.tidy();
    }
    assert!(allocated(directory.path()) <= capacity, "{}", allocated(directory.path()));
    let statistics = factory.statistics();
    assert!(statistics.evicted_chunks >= 80, "{statistics:?}");
    assert_eq!(statistics.bypassed_chunks, 0, "{statistics:?}");
}

#[test]
fn closed_blobs_go_first_and_pinned_ones_last() {
    let directory = tempfile::tempdir().unwrap();
    let blobs: Vec<_> = (0..3).map(|number| content(4 * CHUNK - number)).collect();
    let servers: Vec<_> = blobs.iter().map(|bytes| serving(bytes)).collect();
    let factory = cached(directory.path(), 16 * CHUNK as u64);
    let pin = factory.pin(digest(&blobs[0]));
    let open = |number: usize| factory.open(&registry(&servers[number].url(), &blobs[number], None)).unwrap();
    let source = open(2);
    for (number, bytes) in blobs.iter().enumerate() {
        assert_eq!(read(&open(number), 0, bytes.len()).unwrap(), *bytes);
    }
    factory.checkpoint();
    // Fills the cache beyond its high mark.
    let more = content(4 * CHUNK - 3);
    let server = serving(&more);
    let extra = factory.open(&registry(&server.url(), &more, None)).unwrap();
    read(&extra, 0, more.len()).unwrap();
    factory.tidy();
    let before: Vec<_> = servers.iter().map(Server::count).collect();
    read(&open(0), 0, CHUNK).unwrap();
    read(&source, 0, CHUNK).unwrap();
    read(&open(1), 0, CHUNK).unwrap();
    let asked: Vec<_> = servers.iter().zip(before).map(|(server, before)| server.count() - before).collect();
    assert_eq!(asked, [0, 1, 0], "only the closed one that nobody pinned has gone");
    drop(pin);
}

#[test]
fn a_full_file_system_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let mount = |words: &[&str]| {
        Command::new(words[0]).args(&words[1..]).arg(directory.path()).stderr(Stdio::null()).status()
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=256k", "none"]).is_ok_and(|status| status.success()) {
        return cannot_test("the right to mount");
    }
    let bytes = content(200 * CHUNK);
    let server = serving(&bytes);
    {
        let factory = cached(&directory.path().join("cache"), 1 << 30);
        let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
        for _ in 0..2 {
            assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
            factory.tidy();
        }
        assert!(factory.statistics().failed_writes > 0);
    }
    assert!(mount(&["umount"]).unwrap().success());
}

#[test]
fn damage_on_the_disk_is_fetched_anew() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(4 * CHUNK);
    let server = serving(&bytes);
    let reference = registry(&server.url(), &bytes, None);
    let factory = cached(directory.path(), 1 << 20);
    read(&factory.open(&reference).unwrap(), 0, bytes.len()).unwrap();
    drop(factory);
    let blob = directory.path().join(digest(&bytes).to_string().replace(':', "-"));
    let mut damaged = std::fs::read(blob.join("data")).unwrap();
    damaged[CHUNK + 7] ^= 1;
    std::fs::write(blob.join("data"), damaged).unwrap();
    let factory = cached(directory.path(), 1 << 20);
    let source = factory.open(&reference).unwrap();
    assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
    assert_eq!((server.count(), factory.statistics().damaged_chunks), (2, 1));
    // And once more when the layer above says so.
    source.evict(0, 1);
    assert_eq!(read(&source, 0, 1).unwrap(), bytes[..1]);
    assert_eq!(server.count(), 3);
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let stray = directory.path().join(digest(b"stray").to_string().replace(':', "-"));
    std::fs::create_dir(&stray).unwrap();
    std::fs::write(stray.join("index"), b"nonsense").unwrap();
    std::fs::write(directory.path().join("note"), b"mine").unwrap();
    drop(cached(directory.path(), 1 << 20));
    assert!(!stray.exists(), "what has the name of a blob and is none has gone");
    assert!(directory.path().join("note").exists());
}

const CHILD: &str = "AENV_SOURCES_TEST_CHILD";

/// Not a test of its own: the process that the test below kills. It reads, saves and evicts as fast as it can.
#[test]
fn child_that_is_killed() {
    let Some(words) = std::env::var_os(CHILD) else { return };
    let words = words.into_string().unwrap();
    let (url, directory) = words.split_once(' ').unwrap();
    let bytes = content(60 * CHUNK);
    let factory = cached(Path::new(directory), 40 * CHUNK as u64);
    let source = factory.open(&registry(url, &bytes, None)).unwrap();
    for round in 0.. {
        let at = round * 7919 % (59 * CHUNK);
        assert_eq!(read(&source, at, CHUNK).unwrap(), bytes[at..at + CHUNK]);
        if round % 5 == 0 {
            factory.checkpoint();
            factory.tidy();
        }
        println!("round");
    }
}

#[test]
fn a_killed_process_leaves_a_cache_that_tells_no_lies() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(60 * CHUNK);
    let server = serving(&bytes);
    let survived = AtomicUsize::new(0);
    for rounds in [3, 10, 33, 61, 90, 127] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cache::child_that_is_killed", "--nocapture"])
            .env(CHILD, format!("{} {}", server.url(), directory.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen = lines.filter(|line| line.as_ref().unwrap() == "round").take(rounds).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, rounds, "the child must live until it is killed");
        let factory = cached(directory.path(), 40 * CHUNK as u64);
        survived.fetch_max(factory.statistics().used_bytes as usize, Ordering::SeqCst);
        let before = factory.statistics().used_bytes;
        assert!(allocated(directory.path()) <= before, "nothing is there that is not counted");
        let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
        assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
        assert_eq!(factory.statistics().damaged_chunks, 0);
    }
    assert!(survived.into_inner() > 0, "something outlives a kill");
}

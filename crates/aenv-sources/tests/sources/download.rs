//! Whole blobs in the background, and what is fetched ahead.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use aenv_sources::{prefetch, DownloadState, PrefetchOptions, SourceError, TraceRecord};

use crate::server::{Reply, Server};
use crate::support::{cached, content, digest, read, registry, uncached};

const CHUNK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_whole_blob_needs_no_server_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(30 * CHUNK + 5);
    let served = bytes.clone();
    let is_gone = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_gone);
    let server = Server::start(move |request| match switch.load(Ordering::SeqCst) {
        true => Reply::new(500),
        false => Reply::range(request, &served),
    });
    let reference = registry(&server.url(), &bytes, None);
    let factory = cached(directory.path(), 1 << 20);
    let (source, download) = factory.download(&reference).unwrap();
    let download = download.unwrap();
    assert!(matches!(download.wait(PATIENCE), DownloadState::Whole), "{:?}", download.state());
    is_gone.store(true, Ordering::SeqCst);
    assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
    drop((source, factory));
    let factory = cached(directory.path(), 1 << 20);
    let (source, download) = factory.download(&reference).unwrap();
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::Whole), "it is known to be whole");
    assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn a_download_goes_on_where_an_earlier_life_ended() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(30 * CHUNK);
    let served = bytes.clone();
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fetched);
    let server = Server::start(move |request| {
        let (first, last) = request.range();
        count.fetch_add(last + 1 - first, Ordering::SeqCst);
        Reply::range(request, &served)
    });
    let reference = registry(&server.url(), &bytes, None);
    let factory = cached(directory.path(), 1 << 20);
    read(&factory.open(&reference).unwrap(), 10 * CHUNK, 5 * CHUNK).unwrap();
    drop(factory);
    let factory = cached(directory.path(), 1 << 20);
    let (_source, download) = factory.download(&reference).unwrap();
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::Whole));
    assert_eq!(fetched.load(Ordering::SeqCst), bytes.len(), "nothing is fetched twice");
}

#[test]
fn other_content_than_the_digest_says_is_never_believed() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(8 * CHUNK);
    let mut other = bytes.clone();
    other[3 * CHUNK] ^= 1;
    let server = Server::start(move |request| Reply::range(request, &other));
    let factory = cached(directory.path(), 1 << 20);
    let (source, download) = factory.download(&registry(&server.url(), &bytes, None)).unwrap();
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::Tainted));
    match read(&source, 0, 1) {
        Err(SourceError::Tainted { digest: named }) => assert_eq!(named, digest(&bytes)),
        other => panic!("{other:?}"),
    }
    let statistics = factory.statistics();
    assert_eq!((statistics.tainted_blobs, statistics.used_bytes), (1, 0));
    assert_eq!(statistics.fetched_bytes, 2 * bytes.len() as u64, "it had a second chance");
}

#[test]
fn content_that_was_damaged_on_its_way_is_fetched_again() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(8 * CHUNK);
    let served = bytes.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let mut served = served.clone();
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            served[request.range().0] ^= 1;
        }
        Reply::range(request, &served)
    });
    let factory = cached(directory.path(), 1 << 20);
    let (source, download) = factory.download(&registry(&server.url(), &bytes, None)).unwrap();
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::Whole));
    assert_eq!(read(&source, 0, bytes.len()).unwrap(), bytes);
}

#[test]
fn what_does_not_fit_or_is_not_read_is_not_downloaded() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(8 * CHUNK);
    let served = bytes.clone();
    let server = Server::start(move |request| Reply::range(request, &served));
    let reference = registry(&server.url(), &bytes, None);
    let small = cached(directory.path(), bytes.len() as u64);
    let (_source, download) = small.download(&reference).unwrap();
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::NoRoom));
    assert_eq!(server.count(), 0);
    let (_, without_cache) = uncached().download(&reference).unwrap();
    assert!(without_cache.is_none());
}

#[test]
fn a_download_of_a_closed_blob_ends() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(8 * CHUNK);
    let server = Server::start(|_| Reply::new(404));
    let factory = cached(directory.path(), 1 << 20);
    let (source, download) = factory.download(&registry(&server.url(), &bytes, None)).unwrap();
    drop(source);
    assert!(matches!(download.unwrap().wait(PATIENCE), DownloadState::Closed));
}

#[test]
fn a_trace_brings_what_will_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = content(100 * CHUNK);
    let served = bytes.clone();
    let server = Server::start(move |request| Reply::range(request, &served));
    let factory = cached(directory.path(), 1 << 20);
    let source = factory.open(&registry(&server.url(), &bytes, None)).unwrap();
    let offsets: Vec<_> = (0..20).map(|number| number * 5 * CHUNK).collect();
    let record = |&offset: &usize| TraceRecord { layer: 0, offset: offset as u64, length: 100 };
    let records: Vec<_> = offsets.iter().map(record).collect();
    let options = PrefetchOptions { gap_bytes: 0, ..PrefetchOptions::default() };
    let outcome = prefetch(&[Arc::clone(&source)], &records, options, &AtomicBool::new(false));
    assert_eq!((outcome.bytes, outcome.failures), (2000, 0));
    let before = server.count();
    for offset in offsets {
        assert_eq!(read(&source, offset, 100).unwrap(), bytes[offset..offset + 100]);
    }
    assert_eq!((before, server.count()), (20, 20), "readers find everything there");
}

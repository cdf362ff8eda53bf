//! The table file through crashes, damage and rewriting.

use std::fs;
use std::sync::Barrier;

use super::*;
use crate::image::{OpenArguments, Use};

fn description(name: &str, serial: u64) -> Description {
    let opened = OpenArguments {
        name: name.to_owned().try_into().unwrap(),
        layers: Vec::new(),
        writable: None,
        plain: None,
        purpose: Use::Disk,
        owner: 0,
    };
    Description::new(serial, opened)
}

fn put(name: &str, serial: u64) -> Change {
    Change::Put(Box::new(description(name, serial)))
}

fn names(journal: &Journal) -> Vec<String> {
    journal.images().iter().map(|image| image.name().to_string()).collect()
}

#[test]
fn test_changes_are_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let journal = Journal::open(&path).unwrap();
    let serial = journal.take_serial();
    journal.commit(put("a", serial)).unwrap();
    journal.commit(put("b", journal.take_serial())).unwrap();
    journal.commit(Change::Drop("a".to_owned().try_into().unwrap())).unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert_eq!(names(&journal), ["b"]);
    assert!(journal.take_serial() > serial + 1, "numbers are never given twice");
}

#[test]
fn test_every_cut_is_the_state_before_or_after_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let journal = Journal::open(&path).unwrap();
    journal.commit(put("a", 2)).unwrap();
    let before = fs::metadata(&path).unwrap().len() as usize;
    journal.commit(put("b", 3)).unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in before..whole.len() {
        for is_zeroed in [false, true] {
            let mut bytes = whole[..cut].to_vec();
            if is_zeroed {
                bytes.resize(whole.len(), 0);
            }
            fs::write(&path, &bytes).unwrap();
            let journal = Journal::open(&path).unwrap();
            assert_eq!(names(&journal), ["a"], "cut at {cut}");
            journal.commit(put("c", 4)).unwrap();
            drop(journal);
            assert_eq!(names(&Journal::open(&path).unwrap()), ["a", "c"]);
        }
    }
}

#[test]
fn test_damage_before_the_end_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let journal = Journal::open(&path).unwrap();
    for name in ["a", "b", "c"] {
        journal.commit(put(name, 2)).unwrap();
    }
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let refused = Journal::open(&path).err().expect("the first frame is damaged");
    assert!(matches!(refused, TableError::Damaged { offset: 8, .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "a damaged table stays as it is");
    fs::write(&path, b"something else").unwrap();
    assert!(matches!(Journal::open(&path), Err(TableError::Foreign(_))));
}

#[test]
fn test_a_long_past_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let journal = Journal::open(&path).unwrap();
    lock(&journal.writer).rewrite_at = 4096;
    for serial in 2..100 {
        journal.commit(put("a", serial)).unwrap();
        lock(&journal.writer).rewrite_at = 4096;
    }
    assert!(fs::metadata(&path).unwrap().len() < 8192);
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().images()[0].serial, 99);
}

#[test]
fn test_changes_of_many_threads_are_all_durable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let journal = Journal::open(&path).unwrap();
    let barrier = Barrier::new(16);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (journal, barrier) = (&journal, &barrier);
            scope.spawn(move || {
                barrier.wait();
                journal.commit(put(&format!("image-{number}"), number)).unwrap();
            });
        }
    });
    drop(journal);
    assert_eq!(names(&Journal::open(&path).unwrap()).len(), 16);
}

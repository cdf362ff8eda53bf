//! First captures, captures over a file, and captures that are compared with the ones before.

use std::fs;
use std::path::PathBuf;

use aenv_layers::View;
use aenv_memory::{make_durable, scan, Base, Changes};
use sha2::{Digest, Sha256};
use tempfile::tempdir;

use crate::support::{contents, go_on, page_bytes, stack, this_process, write, Frozen, Mapping, PAGE};

#[test]
fn test_first_capture_holds_what_is_not_zero() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(64);
    memory.fill(3, 0xA1);
    memory.fill(4, 0xA2);
    memory.fill(40, 0);
    assert_eq!(memory.read(60), 0);

    let process = this_process();
    let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
    assert_eq!(pages.runs().iter().map(|run| (run.first, run.count)).collect::<Vec<_>>(), [(3, 2), (40, 1)]);
    let written = write(&process, &memory, &pages, Base::Nothing, &path).unwrap();

    assert_eq!(written.data_bytes, 2 * PAGE as u64);
    assert_eq!(written.length, fs::metadata(&path).unwrap().len());
    let captured = stack(&[path]);
    assert_eq!(captured.size(), 64 * PAGE as u64);
    assert_eq!(captured.entries().len(), 1);
    assert_eq!(page_bytes(&captured), contents(&memory));
}

#[test]
fn test_digest_is_that_of_the_file_however_it_is_computed() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(600);
    (0..600).for_each(|page| memory.fill(page, page as u8));
    let process = this_process();
    let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
    let written = write(&process, &memory, &pages, Base::Nothing, &path).unwrap();

    let expected: [u8; 32] = Sha256::digest(fs::read(&path).unwrap()).into();
    assert_eq!(written.digest, Some(expected));
    assert_eq!(make_durable(&path, true, &mut go_on).unwrap(), Some(expected));
    assert_eq!(make_durable(&path, false, &mut go_on).unwrap(), None);
}

#[test]
fn test_capture_over_a_file_holds_what_is_no_longer_the_file() {
    let directory = tempdir().unwrap();
    let image = directory.path().join("image");
    fs::write(&image, vec![0x11; 32 * PAGE]).unwrap();
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    let memory = Mapping::over(&file, 32);
    assert_eq!(memory.read(1), 0x11);
    memory.fill(2, 0x22);
    memory.fill(9, 0);

    let process = this_process();
    process.check_region(memory.region()).unwrap();
    let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
    assert_eq!(pages.count(), 2);
    let path = directory.path().join("m1");
    let written = write(&process, &memory, &pages, Base::Layers, &path).unwrap();

    assert_eq!(written.data_bytes, PAGE as u64);
    let entries: Vec<_> = stack(&[path])
        .entries()
        .iter()
        .map(|entry| (entry.start() / 8, entry.length() / 8, entry.is_zeroed()))
        .collect();
    assert_eq!(entries, [(2, 1, false), (9, 1, true)]);
}

#[test]
fn test_compared_captures_hold_what_changed_since_the_one_before() {
    let directory = tempdir().unwrap();
    let memory = Mapping::anonymous(1000);
    (0..500).for_each(|page| memory.fill(page, 1));
    let process = this_process();
    let mut layers: Vec<PathBuf> = Vec::new();
    for generation in 0..5_usize {
        let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
        let path = directory.path().join(format!("m{generation}"));
        let below = stack(&layers);
        let base = if layers.is_empty() { Base::Nothing } else { Base::Compared(&below) };
        let written = write(&process, &memory, &pages, base, &path).unwrap();
        layers.push(path);

        let expected = if generation == 0 { 500 } else { 3 };
        assert_eq!(written.data_bytes, (expected * PAGE) as u64, "generation {generation}");
        assert_eq!(page_bytes(&stack(&layers)), contents(&memory), "generation {generation}");
        memory.fill(generation, 0);
        (0..3).for_each(|page| memory.fill(600 + generation * 7 + page, 0x40 + generation as u8));
    }
}

#[test]
fn test_a_frozen_copy_is_captured_while_the_original_goes_on() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(2000);
    (0..2000).step_by(2).for_each(|page| memory.fill(page, 5));
    let pages = scan(&this_process(), memory.region(), Changes::SinceStart).unwrap();
    let before = contents(&memory);
    let frozen = Frozen::start();
    (0..2000).for_each(|page| memory.fill(page, 6));

    write(&crate::support::open(frozen.0), &memory, &pages, Base::Nothing, &path).unwrap();

    let mut captured = page_bytes(&stack(&[path]));
    captured.resize(2000, 0);
    assert_eq!(captured, before);
}

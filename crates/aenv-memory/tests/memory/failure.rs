//! Whatever goes wrong has a name, and leaves no file.

use std::fs;
use std::ops::ControlFlow;

use aenv_layers::LayerId;
use aenv_memory::{
    scan, write_layer, Base, Changes, MemoryError, NewLayerFile, PageRun, Pages, Region, Source,
};
use tempfile::tempdir;

use crate::support::{go_on, open, this_process, write, Frozen, Mapping};

#[test]
fn test_a_process_that_is_killed_in_the_middle_of_a_copy() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(1000);
    (0..1000).for_each(|page| memory.fill(page, 1));
    let frozen = Frozen::start();
    let process = open(frozen.0);
    let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
    let source = Source { process: &process, region: memory.region() };
    let new = NewLayerFile { path: &path, id: LayerId::NONE, parent: LayerId::NONE, is_hashed: false };

    let outcome = write_layer(source, &pages, Base::Nothing, new, &mut |_| {
        frozen.kill();
        ControlFlow::Continue(())
    });

    assert!(matches!(outcome, Err(MemoryError::ProcessGone { .. })), "{outcome:?}");
    assert!(!path.exists());
}

#[test]
fn test_a_cancelled_copy_leaves_no_file() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(1000);
    (0..1000).for_each(|page| memory.fill(page, 1));
    let process = this_process();
    let pages = scan(&process, memory.region(), Changes::SinceStart).unwrap();
    let source = Source { process: &process, region: memory.region() };
    let new = NewLayerFile { path: &path, id: LayerId::NONE, parent: LayerId::NONE, is_hashed: false };

    let outcome = write_layer(source, &pages, Base::Nothing, new, &mut |_| ControlFlow::Break(()));

    assert!(outcome.unwrap_err().is_cancelled());
    assert!(!path.exists());
}

#[test]
fn test_a_file_that_is_there_already_is_left_alone() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    fs::write(&path, "mine").unwrap();
    let memory = Mapping::anonymous(1);

    let outcome = write(&this_process(), &memory, &Pages::default(), Base::Nothing, &path);

    assert!(matches!(outcome, Err(MemoryError::File { operation: "create", .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn test_memory_that_cannot_be_read_is_named() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("m1");
    let memory = Mapping::anonymous(4);
    let region = Region::new(memory.region().address(), 1 << 40).unwrap();
    let far = Pages::from_iter([PageRun { first: 1 << 27, count: 1 }]);
    let process = this_process();
    let new = NewLayerFile { path: &path, id: LayerId::NONE, parent: LayerId::NONE, is_hashed: false };

    let outcome = write_layer(Source { process: &process, region }, &far, Base::Nothing, new, &mut go_on);

    let expected = region.address() + (1 << 39);
    assert!(matches!(outcome, Err(MemoryError::Read { address, .. }) if address == expected), "{outcome:?}");
    assert!(!path.exists());
    assert!(matches!(process.check_region(region), Err(MemoryError::NotPrivateMemory { .. })));
}

#[test]
fn test_another_process_of_the_same_number_is_not_opened() {
    let outcome = aenv_memory::Process::open(std::process::id() as i32, 1);
    assert!(matches!(outcome, Err(MemoryError::ProcessGone { .. })));
    assert!(matches!(aenv_memory::Process::open(i32::MAX, 1), Err(MemoryError::ProcessGone { .. })));
}

//! A full disk and broken reads and writes at every call: the error is reported, and nothing acknowledged is lost.

use std::sync::Arc;

use aenv_layers::{flatten, LayerError, NewSealed, Stack, View, Wrapping, WritableLayer, WritePolicy};

use crate::simulation::{Fault, Machine};
use crate::support::{create, go_on, pair, reopen, APPEND, IN_PLACE, SECTOR};

const SECTORS: usize = 16;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What may be in each sector: what was acknowledged last, or tried since.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn write(&mut self, start: usize, length: usize, value: u8, outcome: &Result<(), LayerError>) {
        for sector in &mut self.0[start..start + length] {
            if outcome.is_ok() {
                sector.clear();
            }
            sector.push(value);
        }
    }

    fn check(&self, view: &dyn View) {
        let mut bytes = vec![0xcc; SECTORS * SECTOR];
        view.read(0, &mut bytes).unwrap();
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            let value = sector[0];
            assert!(sector.iter().all(|&byte| byte == value), "sector {number} is torn");
            assert!(self.0[number].contains(&value), "sector {number}: {value} of {:?}", self.0[number]);
        }
    }
}

/// Writes, discards, flushes, compacts; returns the outcomes that failed.
fn work(layer: &WritableLayer, model: &mut Model) -> usize {
    let mut failures = 0;
    let mut attempt = |outcome: Result<(), LayerError>| {
        failures += usize::from(outcome.is_err());
        outcome
    };
    for round in 0..3u8 {
        for start in [0, 3, 9] {
            let value = 1 + round * 16 + start as u8;
            let outcome = attempt(layer.write((start * SECTOR) as u64, &vec![value; 3 * SECTOR]));
            model.write(start, 3, value, &outcome);
        }
        let outcome = attempt(layer.zero((4 * SECTOR) as u64, (2 * SECTOR) as u64));
        model.write(4, 2, 0, &outcome);
        let _ = attempt(layer.flush());
        if round == 1 {
            let _ = attempt(layer.compact_index());
        }
        let _ = attempt(layer.reclaim().map(drop));
    }
    failures
}

fn run(policy: WritePolicy, call: usize, fault: Fault, host_dies: bool) -> usize {
    let machine = Machine::new(call as u64);
    machine.shorten_calls();
    let size = (SECTORS * SECTOR) as u64;
    let layer = create(pair(&machine.directory(), 0), size, policy, machine.boot()).unwrap();
    let calls_before = machine.calls();
    let mut model = Model(vec![vec![0]; SECTORS]);
    machine.fault_after(call, fault);
    let failures = work(&layer, &mut model);
    let was_reached = machine.calls() - calls_before > call;
    assert_eq!(failures > 0, was_reached, "a failure of call {call} is not reported");
    machine.restart_program();
    model.check(&layer);
    if host_dies {
        // Only a flush that succeeds afterwards promises anything to a host that dies.
        if layer.flush().is_err() {
            return machine.calls() - calls_before;
        }
        machine.restart_host();
    }
    let layer = reopen(pair(&machine.directory(), 0), policy, machine.boot()).unwrap();
    model.check(&layer);
    let mut model = Model(vec![(0..=255).collect(); SECTORS]);
    assert_eq!(work(&layer, &mut model), 0, "a layer that was opened anew works again");
    model.check(&layer);
    machine.calls() - calls_before
}

#[test]
fn test_an_error_at_any_call_loses_nothing_acknowledged() {
    for policy in [APPEND, IN_PLACE] {
        for host_dies in [false, true] {
            for fault in [Fault::Error(EIO), Fault::Error(ENOSPC), Fault::ErrorFromNowOn(ENOSPC)] {
                let calls = run(policy, usize::MAX / 2, fault, host_dies);
                for call in 0..calls {
                    run(policy, call, fault, host_dies);
                }
            }
        }
    }
}

#[test]
fn test_sealing_can_be_tried_again() {
    for call in 0.. {
        let machine = Machine::new(call as u64);
        let size = (SECTORS * SECTOR) as u64;
        let layer = create(pair(&machine.directory(), 0), size, IN_PLACE, machine.boot()).unwrap();
        let mut model = Model(vec![vec![0]; SECTORS]);
        assert_eq!(work(&layer, &mut model), 0);
        machine.fault_after(call, Fault::Error(ENOSPC));
        let outcome = layer.seal();
        machine.restart_program();
        model.check(&layer);
        let is_done = outcome.is_ok();
        let again = match outcome {
            Ok(sealed) => Ok(sealed),
            Err(_) => layer.seal(),
        };
        match again {
            Ok(sealed) => model.check(&Stack::new("stack", vec![Arc::new(sealed)]).unwrap()),
            // After a failed sync only a new open tells what is there.
            Err(LayerError::Failed { .. }) => {
                let layer = reopen(pair(&machine.directory(), 0), IN_PLACE, machine.boot()).unwrap();
                model.check(&layer);
                model.check(&Stack::new("stack", vec![Arc::new(layer.seal().unwrap())]).unwrap());
            }
            Err(error) => panic!("call {call}: {error:?}"),
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn test_creating_and_exporting_report_every_error() {
    for call in 0.. {
        let machine = Machine::new(1);
        machine.fault_after(call, Fault::Error(ENOSPC));
        let created = create(pair(&machine.directory(), 0), 512, IN_PLACE, machine.boot());
        let is_done = created.is_ok();
        machine.restart_program();
        if is_done {
            break;
        }
        assert!(matches!(created.err(), Some(LayerError::Io { .. })));
        create(pair(&machine.directory(), 0), 512, IN_PLACE, machine.boot()).unwrap();
    }
    let base = crate::support::open(include_bytes!("../vectors/two_segments.bin"));
    let base = Stack::new("base", vec![base]).unwrap();
    let wrapping = Wrapping { compression: Some(aenv_layers::ZfileOptions::default()), archive: true };
    for call in 0.. {
        let machine = Machine::new(1);
        let file = machine.directory().create("new").unwrap();
        machine.fault_after(call, Fault::Error(EIO));
        let outcome = aenv_layers::export("new", Arc::clone(&file), wrapping, |sink| {
            flatten(&base, NewSealed::default(), sink, &mut go_on)
        });
        machine.restart_program();
        if outcome.is_ok() {
            assert!(call > 5);
            break;
        }
        assert!(matches!(outcome, Err(LayerError::Io { .. })));
    }
}

#[test]
fn test_a_failed_sync_is_never_taken_for_done() {
    let machine = Machine::new(1);
    let layer = create(pair(&machine.directory(), 0), 4096, IN_PLACE, machine.boot()).unwrap();
    layer.write(0, &[1; 512]).unwrap();
    machine.fault_after(0, Fault::Error(EIO));
    assert!(matches!(layer.flush(), Err(LayerError::Io { .. })));
    for _ in 0..2 {
        assert!(matches!(layer.flush(), Err(LayerError::Failed { .. })));
        assert!(matches!(layer.write(0, &[2; 512]), Err(LayerError::Failed { .. })));
        assert!(matches!(layer.seal().map(drop), Err(LayerError::Failed { .. })));
    }
    assert_eq!(crate::support::read(&layer, 0, 512), [1; 512]);
}

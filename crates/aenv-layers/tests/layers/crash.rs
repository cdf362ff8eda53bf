//! Every point where the program or the host can die. The rules are those of the durability protocol: flushed writes
//! survive the host, acknowledged ones survive the program, and no sector ever reads as something it never held.

use std::collections::BTreeSet;

use aenv_layers::{LayerError, Limits, OpenLayer, SealedLayer, View, WritableLayer, WritePolicy};

use crate::simulation::{Dice, Fault, Lie, Machine};
use crate::support::{create, pair, reopen, APPEND, IN_PLACE, SECTOR};

const SECTORS: usize = 10;

/// What the sectors hold and may hold. A value is written into every byte of its sector.
struct Model {
    /// The last acknowledged value.
    acknowledged: Vec<u64>,
    /// Values that are legal after the host died.
    legal: Vec<BTreeSet<u64>>,
    /// Values of the operation that was under way when the program died.
    under_way: Vec<Option<u64>>,
    next_value: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            acknowledged: vec![0; SECTORS],
            legal: vec![BTreeSet::from([0]); SECTORS],
            under_way: vec![None; SECTORS],
            next_value: 1,
        }
    }

    fn begin(&mut self, start: usize, length: usize, value: u64) {
        self.under_way = vec![None; SECTORS];
        for sector in start..start + length {
            self.legal[sector].insert(value);
            self.under_way[sector] = Some(value);
        }
    }

    fn acknowledge(&mut self) {
        for (sector, value) in self.under_way.iter_mut().enumerate() {
            if let Some(value) = value.take() {
                self.acknowledged[sector] = value;
            }
        }
    }

    fn flushed(&mut self) {
        self.legal = self.acknowledged.iter().map(|&value| BTreeSet::from([value])).collect();
    }
}

fn sector_of(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(SECTOR / 8)
}

/// Why the values of a disk are not known.
#[derive(Debug, PartialEq, Eq)]
enum Unknown {
    Unreadable,
    Torn,
}

fn contents(view: &dyn View) -> Result<Vec<u64>, Unknown> {
    let mut bytes = vec![0; SECTORS * SECTOR];
    view.read(0, &mut bytes).map_err(|_| Unknown::Unreadable)?;
    bytes
        .chunks(SECTOR)
        .map(|sector| {
            let value = u64::from_le_bytes(sector[..8].try_into().unwrap());
            if sector == sector_of(value) {
                Ok(value)
            } else {
                Err(Unknown::Torn)
            }
        })
        .collect()
}

fn random_operation(layer: &WritableLayer, model: &mut Model, dice: &mut Dice) -> Result<(), LayerError> {
    let start = dice.below(SECTORS);
    let length = 1 + dice.below(3.min(SECTORS - start));
    let offset = (start * SECTOR) as u64;
    match dice.below(100) {
        0..60 => {
            let value = model.next_value;
            model.next_value += 1;
            model.begin(start, length, value);
            layer.write(offset, &sector_of(value).repeat(length))?;
            model.acknowledge();
        }
        60..72 => {
            model.begin(start, length, 0);
            layer.zero(offset, (length * SECTOR) as u64)?;
            model.acknowledge();
        }
        72..86 => {
            layer.flush()?;
            model.flushed();
        }
        86..93 => {
            layer.compact_index()?;
        }
        93..99 => drop(layer.reclaim()?),
        _ => {
            layer.seal()?;
        }
    }
    Ok(())
}

/// Runs one life until the program dies or has had enough.
fn live(layer: &WritableLayer, model: &mut Model, dice: &mut Dice) -> Result<(), String> {
    for _ in 0..dice.below(20) {
        match random_operation(layer, model, dice) {
            Ok(()) => {}
            Err(LayerError::Frozen { .. }) => {
                // A sealed layer takes no more writes, and the rest must still be right.
                model.under_way = vec![None; SECTORS];
            }
            Err(_) => return Ok(()),
        }
        match contents(layer) {
            Ok(values) if values == model.acknowledged => {}
            Err(Unknown::Unreadable) => return Ok(()),
            wrong => return Err(format!("while running: {wrong:?} for {:?}", model.acknowledged)),
        }
    }
    Ok(())
}

/// Opens the layer, dying a few times on the way.
fn come_back(
    machine: &Machine,
    policy: WritePolicy,
    dice: &mut Dice,
    host_died: bool,
) -> Result<WritableLayer, String> {
    if host_died {
        machine.restart_host();
    }
    for _ in 0..dice.below(3) {
        machine.restart_program();
        machine.fault_after(dice.below(14), Fault::Death);
        drop(reopen(pair(&machine.directory(), 0), policy, machine.boot()));
        if host_died && dice.chance(50) {
            machine.restart_host();
        }
    }
    machine.restart_program();
    reopen(pair(&machine.directory(), 0), policy, machine.boot())
        .map_err(|error| format!("cannot open: {error:?}"))
}

/// One random story of several lives. The error tells which rule was broken.
fn story(seed: u64, lie: Option<Lie>) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed + 1);
    let policy = if dice.chance(50) { APPEND } else { IN_PLACE };
    let mut layer =
        create(pair(&machine.directory(), 0), (SECTORS * SECTOR) as u64, policy, machine.boot()).unwrap();
    if let Some(lie) = lie {
        machine.lie(lie);
    }
    if dice.chance(30) {
        machine.shorten_calls();
    }
    let mut model = Model::new();
    for _ in 0..1 + dice.below(4) {
        if dice.chance(80) {
            machine.fault_after(dice.below(60), Fault::Death);
        }
        live(&layer, &mut model, &mut dice)?;
        if dice.chance(15) && layer.close().is_ok() {
            model.flushed();
        }
        let host_died = dice.chance(60);
        layer = come_back(&machine, policy, &mut dice, host_died)?;
        let found = contents(&layer).map_err(|unknown| format!("after a death: {unknown:?}"))?;
        for (sector, &value) in found.iter().enumerate() {
            if host_died && !model.legal[sector].contains(&value) {
                return Err(format!("sector {sector} reads {value}, legal {:?}", model.legal[sector]));
            }
            let is_kept = value == model.acknowledged[sector] || Some(value) == model.under_way[sector];
            if !host_died && !is_kept {
                return Err(format!("sector {sector} lost {} for {value}", model.acknowledged[sector]));
            }
        }
        model.acknowledged.clone_from(&found);
        model.under_way = vec![None; SECTORS];
        for (legal, &value) in model.legal.iter_mut().zip(&found) {
            if host_died {
                legal.clear();
            }
            legal.insert(value);
        }
    }
    Ok(())
}

/// Stories per test; more by hand, with another first seed.
fn stories() -> std::ops::Range<u64> {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("AENV_LAYERS_FIRST_STORY", 0);
    first..first + number("AENV_LAYERS_STORIES", 3000)
}

#[test]
fn test_no_death_breaks_a_promise() {
    for seed in stories() {
        if let Err(broken) = story(seed, None) {
            panic!("story {seed}: {broken}");
        }
    }
}

#[test]
fn test_a_machine_that_lies_is_noticed() {
    for lie in [Lie::Data, Lie::Index, Lie::Directory] {
        let noticed = (0..20_000).find(|&seed| story(seed, Some(lie)).is_err());
        assert!(noticed.is_some(), "{lie:?} goes unnoticed");
    }
}

/// A layer with something in each state: flushed, overwritten, zeroed, only acknowledged.
fn written(machine: &Machine, policy: WritePolicy) -> (WritableLayer, Vec<u64>) {
    let layer =
        create(pair(&machine.directory(), 0), (SECTORS * SECTOR) as u64, policy, machine.boot()).unwrap();
    let write = |sector: usize, value| layer.write((sector * SECTOR) as u64, &sector_of(value)).unwrap();
    (0..6).for_each(|sector| write(sector, sector as u64 + 1));
    layer.flush().unwrap();
    write(2, 20);
    layer.zero(SECTOR as u64, SECTOR as u64).unwrap();
    write(8, 80);
    (layer, vec![1, 0, 20, 4, 5, 6, 0, 0, 80, 0])
}

#[test]
fn test_death_within_sealing_leaves_the_pair_or_the_sealed_layer() {
    for policy in [APPEND, IN_PLACE] {
        for host_dies in [false, true] {
            for call in 0.. {
                let machine = Machine::new(call as u64);
                let (layer, expected) = written(&machine, policy);
                layer.flush().unwrap();
                machine.fault_after(call, Fault::Death);
                let outcome = layer.seal_as("sealed");
                let is_done = outcome.is_ok();
                drop(outcome);
                if host_dies {
                    machine.restart_host();
                } else {
                    machine.restart_program();
                }
                let directory = machine.directory();
                let found = match directory.open("sealed") {
                    Ok(file) => {
                        let sealed =
                            SealedLayer::open("sealed", std::sync::Arc::new(file), &Limits::default());
                        let stack = aenv_layers::Stack::new("stack", vec![sealed.unwrap().into()]).unwrap();
                        contents(&stack)
                    }
                    Err(_) => {
                        assert!(!is_done, "a sealed layer is gone");
                        contents(&reopen(pair(&directory, 0), policy, machine.boot()).unwrap())
                    }
                };
                assert_eq!(found, Ok(expected), "call {call}");
                if is_done {
                    break;
                }
            }
        }
    }
}

#[test]
fn test_death_within_growth_leaves_one_of_both_sizes() {
    for host_dies in [false, true] {
        for call in 0.. {
            let machine = Machine::new(call as u64);
            let (layer, _) = written(&machine, IN_PLACE);
            let (old, new) = ((SECTORS * SECTOR) as u64, (2 * SECTORS * SECTOR) as u64);
            machine.fault_after(call, Fault::Death);
            let is_done = layer.grow(new).is_ok();
            if host_dies {
                machine.restart_host();
            } else {
                machine.restart_program();
            }
            let layer = reopen(pair(&machine.directory(), 0), IN_PLACE, machine.boot()).unwrap();
            let size = layer.virtual_size();
            assert!(size == new || (!is_done && size == old), "call {call}: {size}");
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn test_death_within_creation_leaves_nothing_that_opens_wrong() {
    for call in 0.. {
        let machine = Machine::new(call as u64);
        machine.fault_after(call, Fault::Death);
        let size = (SECTORS * SECTOR) as u64;
        let is_done = create(pair(&machine.directory(), 0), size, IN_PLACE, machine.boot()).is_ok();
        machine.restart_host();
        match reopen(pair(&machine.directory(), 0), IN_PLACE, machine.boot()) {
            Ok(layer) => assert_eq!(contents(&layer), Ok(vec![0; SECTORS])),
            Err(_) => assert!(!is_done, "a layer that was created is gone"),
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn test_another_life_of_the_host_does_not_believe_what_no_flush_covered() {
    let machine = Machine::new(1);
    let (layer, _) = written(&machine, APPEND);
    drop(layer);
    let options = OpenLayer {
        inherited_size: 0,
        policy: APPEND,
        boot: aenv_layers::BootId([99; 16]),
        limits: Limits::default(),
    };
    let layer = WritableLayer::open("writable", pair(&machine.directory(), 0), options).unwrap();
    assert_eq!(contents(&layer), Ok(vec![1, 2, 3, 4, 5, 6, 0, 0, 0, 0]));
}

#[test]
fn test_our_own_records_are_never_taken_for_those_of_a_foreign_program() {
    for seed in 0..300 {
        for is_closed_before in [false, true] {
            let machine = Machine::new(seed);
            let location = || pair(&machine.directory(), 0);
            let size = (SECTORS * SECTOR) as u64;
            let mut layer = create(location(), size, APPEND, machine.boot()).unwrap();
            let mut old = 0;
            if is_closed_before {
                old = 1;
                layer.write(0, &sector_of(old)).unwrap();
                layer.close().unwrap();
                layer = reopen(location(), APPEND, machine.boot()).unwrap();
            }
            layer.write(0, &sector_of(2)).unwrap();
            // The host may keep the record and lose the data.
            machine.restart_host();
            let found = contents(&reopen(location(), APPEND, machine.boot()).unwrap()).unwrap()[0];
            assert_eq!(found, old, "seed {seed}: what no flush covered is not believed");
        }
    }
}

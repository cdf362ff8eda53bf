//! Measures disks of the mount against a plain file on the same file system, alternately, and prints one JSON array.
//! `disk_bench PROGRAM DIRECTORY ROUNDS SECONDS`; the directory needs 3 GiB, and what is made there is removed.

mod daemon;
mod load;

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::Daemon;
use load::{run, Job};
use serde_json::{json, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SPAN: u64 = 512 << 20;
const MIB: usize = 1 << 20;
/// Blocks that every layer above the first one replaces.
const REPLACED: u64 = 4096;

const JOBS: [Job; 6] = [
    Job { name: "disk_seq_read", is_random: false, writes: false, block: MIB, threads: 1 },
    Job { name: "disk_rand_read_qd16", is_random: true, writes: false, block: 4096, threads: 16 },
    Job { name: "disk_rand_read_qd1", is_random: true, writes: false, block: 4096, threads: 1 },
    Job { name: "disk_seq_write", is_random: false, writes: true, block: MIB, threads: 1 },
    Job { name: "disk_rand_write_qd16", is_random: true, writes: true, block: 4096, threads: 16 },
    Job { name: "disk_rand_write_qd1", is_random: true, writes: true, block: 4096, threads: 1 },
];

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, directory, rounds, seconds] = words.as_slice() else {
        return Err("usage: disk_bench PROGRAM DIRECTORY ROUNDS SECONDS".into());
    };
    let scratch = tempfile::tempdir_in(directory)?;
    let (rounds, time) = (rounds.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let plain = scratch.path().join("plain");
    fill(&plain)?;
    let daemon = Daemon::start(Path::new(program), scratch.path())?;
    let mut rows = Vec::new();
    for layers in [1, 8, 32] {
        let disk = make_disk(&daemon, layers)?;
        for job in JOBS {
            rows.push(measure(&disk, &plain, job, layers, rounds, time)?);
        }
        daemon.close(&image(layers))?;
    }
    daemon.end()?;
    println!("{}", Value::from(rows));
    Ok(())
}

fn image(layers: u64) -> String {
    format!("disk-{layers}")
}

/// A disk whose blocks come from this many sealed layers, with an empty writable one on top.
fn make_disk(daemon: &Daemon, layers: u64) -> Outcome<PathBuf> {
    let image = image(layers);
    let path = daemon.open(&image, SPAN)?;
    fill(&path)?;
    daemon.seal(&image, 1)?;
    let block = [7; 4096];
    let file = File::options().write(true).open(&path)?;
    for layer in 2..=layers {
        for number in 0..REPLACED {
            let place = (number * 2_654_435_761 + layer * 40_503) % (SPAN / 4096);
            file.write_all_at(&block, place * 4096)?;
        }
        daemon.seal(&image, layer)?;
    }
    Ok(path)
}

fn fill(path: &Path) -> Outcome<()> {
    let file = File::options().create(true).write(true).truncate(false).open(path)?;
    let block = vec![5; MIB];
    for number in 0..SPAN / MIB as u64 {
        file.write_all_at(&block, number * MIB as u64)?;
    }
    Ok(file.sync_all()?)
}

fn measure(
    disk: &Path,
    plain: &Path,
    job: Job,
    layers: u64,
    rounds: usize,
    time: Duration,
) -> Outcome<Value> {
    let scale = if job.block == MIB { 1.0 } else { 1e-3 };
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        floor.push(run(plain, job, time, SPAN)? * scale);
        ours.push(run(disk, job, time, SPAN)? * scale);
    }
    let name = match layers {
        1 => job.name.to_owned(),
        _ => format!("{}_{layers}_layers", job.name),
    };
    let unit = if job.block == MIB { "MiB/s" } else { "kIOPS" };
    Ok(json!({ "name": name, "unit": unit, "ours": ours, "floor": floor, "layers": layers }))
}

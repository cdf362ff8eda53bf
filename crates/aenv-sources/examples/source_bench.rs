//! What the cache costs: reads of a blob through it against plain reads of the same file. Prints JSON rows.
//! `cargo run --release -p aenv-sources --example source_bench -- DIRECTORY`

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use aenv_layers::ReadAt;
use aenv_sources::{CacheOptions, Digest, Remote, SourceError, SourceFactory, SourceOptions};
use serde_json::{json, Value};

const SIZE: u64 = 512 << 20;
const SMALL: usize = 4 << 10;
const LARGE: usize = 128 << 10;
const SMALL_READS: usize = 50_000;
const COLD_READS: usize = 1_000;
const ROUNDS: usize = 5;

/// A remote at no distance, so that what is measured is the cache.
struct Near(File);

impl Remote for Near {
    fn fetch(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        self.0
            .read_exact_at(buffer, offset)
            .map_err(|error| SourceError::File { path: "blob".into(), source: Arc::new(error) })
    }
}

type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> std::io::Result<()>;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: source_bench DIRECTORY")?;
    let scratch = tempfile::tempdir_in(directory)?;
    let path = scratch.path().join("blob");
    write_blob(&path)?;
    let file = File::open(&path)?;
    let plain = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    read_all(&plain)?;
    let mut rows = Vec::new();
    let mut cold = Measured::default();
    let mut cold_all = Measured::default();
    let (mut warm, mut warm_all) = (Measured::default(), Measured::default());
    for round in 0..ROUNDS {
        let through = |name: &str| open(scratch.path(), &format!("{name}-{round}"), &path);
        let (factory, source) = through("random")?;
        cold.note(read_random(&cached(&source), COLD_READS, round)?, read_random(&plain, COLD_READS, round)?);
        drop((source, factory));
        let (factory, source) = through("sequential")?;
        cold_all.note(read_all(&cached(&source))?, read_all(&plain)?);
        warm_all.note(read_all(&cached(&source))?, read_all(&plain)?);
        warm.note(
            read_random(&cached(&source), SMALL_READS, round)?,
            read_random(&plain, SMALL_READS, round)?,
        );
        drop((source, factory));
        for name in ["random", "sequential"] {
            std::fs::remove_dir_all(scratch.path().join(format!("{name}-{round}")))?;
        }
    }
    let each = |count: usize| 1e6 / count as f64;
    let rate = |_: usize| SIZE as f64 / (1 << 20) as f64;
    rows.push(cold.row("cache_cold_random_4k", "us", |seconds| seconds * each(COLD_READS)));
    rows.push(warm.row("cache_warm_random_4k", "us", |seconds| seconds * each(SMALL_READS)));
    rows.push(cold_all.row("cache_cold_sequential", "MiB/s", |seconds| rate(0) / seconds));
    rows.push(warm_all.row("cache_warm_sequential", "MiB/s", |seconds| rate(0) / seconds));
    println!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

/// Seconds of ours and of the floor, round by round.
#[derive(Default)]
struct Measured {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Measured {
    fn note(&mut self, ours: f64, floor: f64) {
        self.ours.push(ours);
        self.floor.push(floor);
    }

    fn row(&self, name: &str, unit: &str, convert: impl Fn(f64) -> f64) -> Value {
        let (ours, floor) = (convert(median(&self.ours)), convert(median(&self.floor)));
        json!({
            "name": name, "median": ours, "unit": unit, "floor_median": floor, "ratio": ours / floor,
            "n": ROUNDS, "conditions": "blob of 512 MiB in the page cache, remote in the process, one thread",
        })
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn write_blob(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    let block: Vec<u8> =
        (0..1_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    (0..SIZE / block.len() as u64).try_for_each(|at| file.write_all_at(&block, at * block.len() as u64))
}

type Opened = (SourceFactory, Arc<dyn ReadAt>);

fn open(scratch: &Path, name: &str, blob: &Path) -> Result<Opened, Box<dyn Error>> {
    let cache = CacheOptions::new(scratch.join(name), 4 * SIZE);
    let factory = SourceFactory::new(SourceOptions { cache: Some(cache), ..SourceOptions::default() })?;
    let source = factory.open_remote(Digest::from_bytes([7; 32]), SIZE, Arc::new(Near(File::open(blob)?)))?;
    Ok((factory, source))
}

fn cached(source: &Arc<dyn ReadAt>) -> impl Fn(u64, &mut [u8]) -> std::io::Result<()> + '_ {
    |offset, buffer| {
        let mut done = 0;
        while done < buffer.len() {
            done += source.read_at(offset + done as u64, &mut buffer[done..])?;
        }
        Ok(())
    }
}

fn read_random(read: Read<'_>, count: usize, seed: usize) -> std::io::Result<f64> {
    let mut buffer = vec![0; SMALL];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed as u64;
    let begin = Instant::now();
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        read(state % (SIZE / SMALL as u64) * SMALL as u64, &mut buffer)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

fn read_all(read: Read<'_>) -> std::io::Result<f64> {
    let mut buffer = vec![0; LARGE];
    let begin = Instant::now();
    for at in 0..SIZE / LARGE as u64 {
        read(at * LARGE as u64, &mut buffer)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

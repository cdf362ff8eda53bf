//! The load: threads that read or write one file directly, all at once, for a given time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const ALIGNMENT: usize = 4096;

/// What to do with a file.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) is_random: bool,
    pub(crate) writes: bool,
    pub(crate) block: usize,
    pub(crate) threads: u64,
}

/// Works for the time given, then makes what was written durable, which counts too. Returns blocks per second.
pub(crate) fn run(path: &Path, job: Job, time: Duration, span: u64) -> io::Result<f64> {
    let file = OpenOptions::new().read(true).write(job.writes).custom_flags(libc::O_DIRECT).open(path)?;
    let (done, next, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let barrier = Barrier::new(job.threads as usize + 1);
    let places = span / job.block as u64;
    let began = thread::scope(|scope| {
        let workers: Vec<_> = (0..job.threads)
            .map(|number| {
                let (file, done, next, is_over, barrier) = (&file, &done, &next, &is_over, &barrier);
                scope.spawn(move || {
                    let mut place = Places { dice: number + 1, next, places, is_random: job.is_random };
                    let mut memory = vec![number as u8 + 1; job.block + ALIGNMENT];
                    let shift = memory.as_ptr().align_offset(ALIGNMENT);
                    let buffer = &mut memory[shift..shift + job.block];
                    barrier.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        transfer(file, job.writes, place.next() * job.block as u64, buffer)?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let ends = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        ends.collect::<io::Result<Vec<()>>>()?;
        io::Result::Ok(began)
    })?;
    if job.writes {
        file.sync_data()?;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

fn transfer(file: &File, writes: bool, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    match writes {
        true => file.write_all_at(buffer, offset),
        false => file.read_exact_at(buffer, offset),
    }
}

/// Where to work next: anywhere, or behind where anybody worked last.
struct Places<'a> {
    dice: u64,
    next: &'a AtomicU64,
    places: u64,
    is_random: bool,
}

impl Places<'_> {
    fn next(&mut self) -> u64 {
        if !self.is_random {
            return self.next.fetch_add(1, Ordering::Relaxed) % self.places;
        }
        // xorshift64*
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % self.places
    }
}

//! Loads a file and prints one JSON line: what `tests/bench/disk.py` compares files of the mount with plain files by.
//! `disk_load PATH JOB BLOCK_BYTES THREADS SECONDS SPAN_BYTES`, JOB one of seq_read, seq_write, rand_read, rand_write.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const O_DIRECT: i32 = libc::O_DIRECT;
const ALIGNMENT: usize = 4096;

/// What to do with a file.
#[derive(Clone, Copy)]
struct Job {
    is_random: bool,
    writes: bool,
    block: usize,
    threads: usize,
    time: Duration,
    span: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, block, threads, seconds, span] = words.as_slice() else {
        return Err("six words are needed".into());
    };
    let (is_random, writes) = match name.as_str() {
        "seq_read" => (false, false),
        "seq_write" => (false, true),
        "rand_read" => (true, false),
        "rand_write" => (true, true),
        other => return Err(format!("unknown job {other}").into()),
    };
    let job = Job {
        is_random,
        writes,
        block: block.parse()?,
        threads: threads.parse()?,
        time: Duration::from_secs_f64(seconds.parse()?),
        span: span.parse()?,
    };
    let file = OpenOptions::new().read(true).write(writes).custom_flags(O_DIRECT).open(path)?;
    let (blocks, elapsed) = run(&file, job)?;
    let seconds = elapsed.as_secs_f64();
    let bytes = blocks as f64 * job.block as f64;
    println!(
        r#"{{"job": "{name}", "iops": {:.1}, "mib_per_second": {:.1}}}"#,
        blocks as f64 / seconds,
        bytes / seconds / f64::from(1 << 20)
    );
    Ok(())
}

/// Works for the given time, then makes what was written durable, which counts too.
fn run(file: &File, job: Job) -> Result<(u64, Duration), Box<dyn Error>> {
    let done = AtomicU64::new(0);
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let barrier = Barrier::new(job.threads + 1);
    let mut began = Instant::now();
    let outcome: std::io::Result<()> = thread::scope(|scope| {
        let workers: Vec<_> = (0..job.threads)
            .map(|number| {
                let (done, next, is_over, barrier) = (&done, &next, &is_over, &barrier);
                scope.spawn(move || {
                    let mut memory = vec![number as u8 + 1; job.block + ALIGNMENT];
                    let shift = memory.as_ptr().align_offset(ALIGNMENT);
                    let buffer = &mut memory[shift..shift + job.block];
                    let mut dice = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
                    barrier.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        let places = job.span / job.block as u64;
                        let place = if job.is_random {
                            dice ^= dice << 13;
                            dice ^= dice >> 7;
                            dice ^= dice << 17;
                            dice % places
                        } else {
                            next.fetch_add(1, Ordering::Relaxed) % places
                        };
                        let offset = place * job.block as u64;
                        if job.writes {
                            file.write_all_at(buffer, offset)?;
                        } else {
                            file.read_exact_at(buffer, offset)?;
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        barrier.wait();
        began = Instant::now();
        thread::sleep(job.time);
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    });
    outcome?;
    if job.writes {
        file.sync_data()?;
    }
    Ok((done.load(Ordering::Relaxed), began.elapsed()))
}

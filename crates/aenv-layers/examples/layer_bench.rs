//! Measures what the library promises about speed and memory, and prints one JSON array. Give it a directory on the
//! disk to measure, with 3 GiB free; it removes what it makes.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aenv_layers::{
    BootId, Directory, Disk, FileSink, LayerId, LayerWriter, Limits, LocalDirectory, LocalFile, NewLayer,
    NewSealed, PairLocation, ReadAt, SealedLayer, Sink, Stack, View, WritableLayer, WritePolicy,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LAYERS: u64 = 32;
const ENTRIES: u64 = 1_000_000;
const DISK_SIZE: u64 = 16 << 30;
const SECTORS: u64 = DISK_SIZE / 512;
const WRITTEN: u64 = 1 << 30;
const BLOCK: usize = 4096;

fn main() -> Outcome<()> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let scratch = tempfile::tempdir_in(place)?;
    let mut rows = Vec::new();
    // Memory first: later the allocator has free pages in store, and growth no longer shows.
    measure_memory(scratch.path(), &mut rows)?;
    measure_seal(scratch.path(), &mut rows)?;
    measure_stack(scratch.path(), &mut rows)?;
    println!("[\n{}\n]", rows.join(",\n"));
    Ok(())
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn row(name: &str, value: f64, unit: &str, conditions: &str) -> String {
    format!(r#"  {{"name": "{name}", "value": {value:.3}, "unit": "{unit}", "conditions": "{conditions}"}}"#)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One layer whose runs lie anywhere on the disk, every third of them zeros.
fn write_layer(path: &Path, number: u64) -> Outcome<()> {
    let mut dice = Dice(number + 1);
    let count = ENTRIES / LAYERS;
    let step = SECTORS / count;
    let mut sink =
        Buffered { sink: FileSink::new("bench", Arc::new(LocalFile::create(path)?), 0), bytes: Vec::new() };
    let new = NewSealed { id: LayerId([1; 16]), virtual_size: DISK_SIZE, ..NewSealed::default() };
    let mut writer = LayerWriter::new(new, &mut sink)?;
    let data = vec![number as u8; 8 * 512];
    for run in 0..count {
        let start = run * step + dice.below(step - 8);
        if run % 3 == 0 {
            writer.zeroed(start, 1 + dice.below(8))?;
        } else {
            writer.data(start, &data[..(1 + dice.below(2) as usize) * 512])?;
        }
    }
    writer.finish()?;
    sink.sink.append(&sink.bytes)?;
    Ok(())
}

/// Gathers small appends; the library leaves that to whoever knows the sizes.
struct Buffered {
    sink: FileSink,
    bytes: Vec<u8>,
}

impl Sink for Buffered {
    fn name(&self) -> &Arc<str> {
        self.sink.name()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), aenv_layers::LayerError> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 1 << 20 {
            self.sink.append(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

fn open_stack(directory: &Path) -> Outcome<Stack> {
    let layers = (0..LAYERS)
        .map(|number| {
            let name = format!("layer-{number}");
            let file: Arc<dyn ReadAt> = Arc::new(LocalFile::open_readonly(&directory.join(&name))?);
            Ok(Arc::new(SealedLayer::open(&name, file, &Limits::default())?))
        })
        .collect::<Outcome<Vec<_>>>()?;
    Ok(Stack::new("stack", layers)?)
}

fn measure_stack(directory: &Path, rows: &mut Vec<String>) -> Outcome<()> {
    for number in 0..LAYERS {
        write_layer(&directory.join(format!("layer-{number}")), number)?;
    }
    let mut times = Vec::new();
    for _ in 0..11 {
        let begin = Instant::now();
        drop(open_stack(directory)?);
        times.push(begin.elapsed());
    }
    let stack = open_stack(directory)?;
    let layers: usize = stack.layers().iter().map(|layer| layer.entries().len()).sum();
    times.sort();
    let conditions = format!(
        "{LAYERS} layers, {layers} entries, {} merged, indices in the page cache, fastest {:.1} of {}",
        stack.entries().len(),
        milliseconds(times[0]),
        times.len()
    );
    rows.push(row("layer_open", milliseconds(times[times.len() / 2]), "ms", &conditions));

    let mut dice = Dice(99);
    let mut buffer = vec![0; BLOCK];
    let reads = 200_000;
    let begin = Instant::now();
    for _ in 0..reads {
        stack.read(dice.below(DISK_SIZE / BLOCK as u64) * BLOCK as u64, &mut buffer)?;
    }
    let time = begin.elapsed().as_secs_f64() * 1e6 / f64::from(reads);
    rows.push(row("stack_read_4k", time, "us", "random 4 KiB, one thread, page cache"));
    Ok(())
}

fn resident_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).ok_or("no resident size")?.parse()?;
    Ok(pages * 4096)
}

fn create(directory: &Arc<dyn Directory>, number: usize) -> Outcome<WritableLayer> {
    let location = PairLocation {
        directory: Arc::clone(directory),
        data: format!("data-{number}"),
        index: format!("index-{number}"),
    };
    let new = NewLayer {
        id: LayerId([2; 16]),
        parent: LayerId::NONE,
        virtual_size: DISK_SIZE,
        policy: WritePolicy::default(),
        boot: BootId::of_this_host()?,
    };
    Ok(WritableLayer::create("writable", location, new)?)
}

fn measure_memory(directory: &Path, rows: &mut Vec<String>) -> Outcome<()> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open(directory)?);
    let stack = Arc::new(Stack::new("stack", Vec::new())?);
    let before = resident_bytes()?;
    let disks = (0..500)
        .map(|number| Ok(Disk::new("disk", Arc::new(create(&directory, 1000 + number)?), Arc::clone(&stack))))
        .collect::<Outcome<Vec<_>>>()?;
    let each = (resident_bytes()? - before) as f64 / disks.len() as f64 / 1024.0;
    rows.push(row("disk_memory", each, "KiB", "500 disks over one shared stack, nothing written"));
    Ok(())
}

fn measure_seal(path: &Path, rows: &mut Vec<String>) -> Outcome<()> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open(path)?);
    for (number, name, flushed) in [(0, "layer_seal", true), (1, "layer_seal_unflushed", false)] {
        let layer = create(&directory, number)?;
        let mut dice = Dice(7);
        let block = vec![7; BLOCK];
        let before = resident_bytes()?;
        let begin = Instant::now();
        for _ in 0..WRITTEN / BLOCK as u64 {
            layer.write(dice.below(DISK_SIZE / BLOCK as u64) * BLOCK as u64, &block)?;
        }
        let each = begin.elapsed().as_secs_f64() * 1e6 / (WRITTEN / BLOCK as u64) as f64;
        let grown = (resident_bytes()?.saturating_sub(before)) as f64 / 1024.0 / 1024.0;
        if flushed {
            layer.flush()?;
        }
        let begin = Instant::now();
        layer.freeze();
        let frozen = begin.elapsed();
        let sealed = layer.seal()?;
        let conditions = format!("1 GiB in random 4 KiB writes, {} entries", sealed.entries().len());
        rows.push(row(name, milliseconds(begin.elapsed()), "ms", &conditions));
        rows.push(row(
            &format!("{name}_frozen"),
            milliseconds(frozen),
            "ms",
            "until the old layer takes no writes",
        ));
        rows.push(row(&format!("{name}_write_4k"), each, "us", "one thread, page cache"));
        rows.push(row(&format!("{name}_index_memory"), grown, "MiB", &conditions));
        drop((sealed, layer));
        std::fs::remove_file(path.join(format!("data-{number}")))?;
    }
    Ok(())
}

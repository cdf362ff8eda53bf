//! Any bytes are a valid layer, which then reads to its end, or no layer.
#![no_main]

use std::ops::ControlFlow;
use std::sync::Arc;

use aenv_layers::{Limits, Memory, SealedLayer, Stack, View};
use libfuzzer_sys::fuzz_target;

/// Bytes of the disk that are read: a disk of holes may be large.
const SEEN: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let source = Arc::new(Memory::new(bytes.to_vec()));
    let Ok(layer) = SealedLayer::open("fuzz", source, &Limits::default()) else { return };
    let mut end = 0;
    for entry in layer.entries() {
        assert!(entry.start() >= end && entry.length() > 0);
        end = entry.end();
    }
    let _ = layer.verify(&mut |_| ControlFlow::Continue(()));
    let stack = Stack::new("fuzz", vec![Arc::new(layer)]).expect("one layer is a stack");
    let mut buffer = vec![0; stack.size().min(SEEN) as usize];
    let _ = stack.read(0, &mut buffer);
    let _ = stack.pieces(0, stack.size());
});

//! The golden vectors, both ways: what the reference wrote reads right, and what is written equals it byte for byte.

use std::sync::Arc;

use aenv_layers::{
    commit, find_member, flatten, Content, Extent, FileSink, LayerError, LayerId, LayerWriter, Limits,
    Memory, NewSealed, Piece, ReadAt, SealedLayer, Sink, Stack, TarWriter, View, Wrapping, ZfileOptions,
    ZfileReader, ZfileWriter,
};
use sha2::{Digest, Sha256};

use crate::support::{build, go_on, id, open, read_all, source, MIB};

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("../vectors/", $name, ".bin")).as_slice()
    };
}

fn rows(layer: &SealedLayer) -> Vec<(u64, u64, u64, bool)> {
    layer.entries().iter().map(|e| (e.start(), e.length(), e.target(), e.is_zeroed())).collect()
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|position| (seed * 37 + position * 7 + (position >> 8)) as u8).collect()
}

fn write_plain(new: NewSealed, fill: impl FnOnce(&mut LayerWriter<'_>) -> Result<(), LayerError>) -> Vec<u8> {
    build(Wrapping::default(), |sink| {
        let mut writer = LayerWriter::new(new, sink)?;
        fill(&mut writer)?;
        writer.finish()
    })
}

#[test]
fn test_an_empty_layer() {
    let layer = open(vector!("empty_sealed"));
    assert_eq!(layer.entries(), []);
    assert_eq!((layer.id(), layer.parent()), (id(0), LayerId::NONE));
    assert_eq!(layer.virtual_size(), Some(MIB));
    let new = NewSealed { id: id(0), virtual_size: MIB, ..NewSealed::default() };
    assert_eq!(write_plain(new, |_| Ok(())), vector!("empty_sealed"));
}

#[test]
fn test_two_segments() {
    let layer = open(vector!("two_segments"));
    assert_eq!(rows(&layer), [(0, 2, 8, false), (8, 1, 10, false)]);
    assert_eq!((layer.id(), layer.parent(), layer.tag()), (id(1), id(0), b"two".as_slice()));
    let new =
        NewSealed { id: id(1), parent: id(0), virtual_size: MIB, tag: b"two".to_vec(), detect_zeroes: false };
    let written = write_plain(new, |writer| {
        writer.data(0, &[0xa5; 1024])?;
        writer.data(8, &[0x5a; 512])
    });
    assert_eq!(written, vector!("two_segments"));
}

#[test]
fn test_data_and_zeros_that_inherit_the_size() {
    let layer = open(vector!("data_and_zero"));
    assert_eq!(rows(&layer), [(1, 1, 8, false), (8, 2, 9, true)]);
    assert_eq!(layer.virtual_size(), None);
    let new = NewSealed { id: id(2), parent: id(1), ..NewSealed::default() };
    let written = write_plain(new, |writer| {
        writer.data(1, &[0x11; 512])?;
        writer.zeroed(8, 2)
    });
    assert_eq!(written, vector!("data_and_zero"));
}

#[test]
fn test_a_stack_of_three() {
    let layers =
        vec![open(vector!("empty_sealed")), open(vector!("two_segments")), open(vector!("data_and_zero"))];
    let stack = Stack::new("stack", layers).unwrap();
    let mut expected = vec![0; MIB as usize];
    expected[..512].fill(0xa5);
    expected[512..1024].fill(0x11);
    assert_eq!(read_all(&stack), expected);
}

#[test]
fn test_sealed_in_place_and_committed_are_the_same_disk() {
    let sealed = open(vector!("rw_sealed_in_place"));
    let committed = open(vector!("rw_committed"));
    assert_eq!(rows(&sealed), [(16, 1, 18, true), (17, 1, 9, false), (18, 2, 16, false), (20, 4, 12, false)]);
    assert_eq!(rows(&committed), [(16, 1, 8, true), (17, 7, 8, false)]);
    let sealed = Stack::new("sealed", vec![sealed]).unwrap();
    let committed = Stack::new("committed", vec![committed]).unwrap();
    assert_eq!(read_all(&sealed), read_all(&committed));

    let new = NewSealed { id: id(3), parent: id(2), virtual_size: MIB, ..NewSealed::default() };
    let flattened = build(Wrapping::default(), |sink| flatten(&sealed, new.clone(), sink, &mut go_on));
    assert_eq!(flattened, vector!("rw_committed"));
    let copied = build(Wrapping::default(), |sink| {
        let pieces = sealed.pieces(0, sealed.size())?;
        commit(&sealed, &pieces, new, sink, &mut go_on)
    });
    assert_eq!(copied, vector!("rw_committed"));
}

#[test]
fn test_long_runs_are_cut_as_the_reference_cuts_them() {
    let new = NewSealed { id: id(4), virtual_size: 32 * MIB, ..NewSealed::default() };
    let written = write_plain(new, |writer| {
        writer.data(0, &vec![0xee; 8192 * 512])?;
        writer.data(8192, &vec![0xee; 8192 * 512])?;
        writer.data(16_384, &vec![0xee; 3616 * 512])?;
        writer.zeroed(32_768, 20_000)
    });
    let digest: String = Sha256::digest(&written).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(written.len(), 10_252_288);
    assert_eq!(&digest[..12], "7324f5b6765e");
    assert!(open(&written).entries().iter().all(|entry| entry.length() <= 16_383));
}

#[test]
fn test_compressed_vectors_read_as_the_original() {
    let original = [vec![b'A'; 4096], pattern(3, 904)].concat();
    for bytes in [
        vector!("zfile_2blocks"),
        vector!("zfile_2blocks_trailer"),
        vector!("zfile_2blocks_nocrc"),
        vector!("zfile_2blocks_legacy"),
    ] {
        let reader = ZfileReader::open("vector", source(bytes), &Limits::default()).unwrap();
        assert_eq!(reader.length().unwrap(), original.len() as u64);
        for offset in [0, 1, 4090, 4095, 4096, 4999, 5000] {
            for length in [0, 1, 100, 4096, 5000] {
                let length = length.min(original.len() - offset);
                let mut part = vec![0; length];
                reader.read_exact(offset as u64, &mut part).unwrap();
                assert_eq!(part, original[offset..offset + length]);
            }
        }
        let beyond = reader.read_exact(4999, &mut [0; 2]);
        assert!(matches!(beyond, Err(LayerError::Corrupt { .. })));
    }
}

#[test]
fn test_wrapped_layers_are_the_same_layer() {
    let plain = open(vector!("two_segments"));
    let wrapped =
        [vector!("zfile_two_segments"), vector!("tar_zfile_two_segments"), vector!("tar_two_segments")];
    for bytes in wrapped {
        let layer = open(bytes);
        assert_eq!(rows(&layer), rows(&plain));
        let stack = Stack::new("wrapped", vec![layer]).unwrap();
        assert_eq!(read_all(&stack), read_all(&Stack::new("plain", vec![Arc::clone(&plain)]).unwrap()));
    }
}

#[test]
fn test_archives_are_written_as_the_reference_writes_them() {
    for (payload, archive) in [
        (vector!("two_segments"), vector!("tar_two_segments")),
        (vector!("zfile_two_segments"), vector!("tar_zfile_two_segments")),
    ] {
        let file = Arc::new(Memory::default());
        let (writer, mut sink) = TarWriter::begin("new", Arc::clone(&file) as _).unwrap();
        sink.append(payload).unwrap();
        let unfinished = find_member("new", source(&file.to_vec()));
        assert!(matches!(unfinished, Ok(None)), "{unfinished:?}");
        writer.finish(sink.length()).unwrap();
        assert_eq!(file.to_vec(), archive);
        assert_eq!(find_member("new", source(archive)).unwrap(), Some((1536, payload.len() as u64)));
    }
}

#[test]
fn test_compressed_output_differs_from_the_vector_in_the_encoder_only() {
    let file = Arc::new(Memory::default());
    let sink = FileSink::new("new", Arc::clone(&file) as _, 0);
    let mut writer = ZfileWriter::new(ZfileOptions::default(), sink).unwrap();
    let original = [vec![b'A'; 4096], pattern(3, 904)].concat();
    for part in original.chunks(333) {
        writer.append(part).unwrap();
    }
    writer.finish().unwrap();
    let (ours, theirs) = (file.to_vec(), vector!("zfile_2blocks"));
    // Everything in the header that does not depend on the compressed bytes.
    for range in [0..28, 32..40, 48..64, 68..512] {
        assert_eq!(ours[range.clone()], theirs[range]);
    }
    let reader = ZfileReader::open("ours", source(&ours), &Limits::default()).unwrap();
    let mut read = vec![0; original.len()];
    reader.read_exact(0, &mut read).unwrap();
    assert_eq!(read, original);
}

#[test]
fn test_pieces_tell_data_zeros_and_holes_apart() {
    let stack = Stack::new("stack", vec![open(vector!("rw_committed"))]).unwrap();
    let piece = |start, length, content| Piece { extent: Extent { start, length }, content };
    assert_eq!(
        stack.pieces(14 * 512, 12 * 512).unwrap(),
        [
            piece(14, 2, Content::Hole),
            piece(16, 1, Content::Zeroed),
            piece(17, 7, Content::Data),
            piece(24, 2, Content::Hole),
        ]
    );
}

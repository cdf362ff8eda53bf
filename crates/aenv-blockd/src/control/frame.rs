//! Frames of the control socket: a length of four bytes, most significant first, then that many bytes.

use std::io::{self, Read, Write};

/// Most bytes of one frame.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// The next frame; none when the peer closed the connection between two of them.
pub(crate) fn read(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let first = loop {
        match stream.read(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[first..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is longer than 1 MiB"));
    }
    let mut frame = Vec::new();
    // Memory is taken as bytes come, not as the length promises.
    stream.take(length as u64).read_to_end(&mut frame)?;
    if frame.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// Sends one frame.
pub(crate) fn write(stream: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|&length| length as usize <= MAX_FRAME)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is longer than 1 MiB"))?;
    let mut frame = Vec::with_capacity(4 + payload.len());
    frame.extend(length.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_a_frame_ends_where_it_says() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"one").unwrap();
        write(&mut bytes, b"").unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(read(&mut stream).unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(read(&mut stream).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(read(&mut stream).unwrap(), None);
    }

    #[test]
    fn test_too_long_and_cut_frames_are_refused() {
        assert!(read(&mut &[0xff; 8][..]).is_err());
        assert!(read(&mut &[0, 0, 0, 9, 1][..]).is_err());
        assert!(read(&mut &[0, 0][..]).is_err());
        assert!(write(&mut Vec::new(), &vec![0; MAX_FRAME + 1]).is_err());
    }

    proptest! {
        #[test]
        fn test_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut stream = bytes.as_slice();
            while let Ok(Some(frame)) = read(&mut stream) {
                prop_assert!(frame.len() < bytes.len());
            }
        }
    }
}

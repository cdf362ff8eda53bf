//! Base64 for output that floods: eight characters at once by arithmetic. A table costs an emulated guest, where each
//! look-up is a handful of instructions, five times as much. Decoding is in `json`.

use ::base64::engine::general_purpose::STANDARD;
use ::base64::Engine;

/// Bytes that become eight characters, and how many are loaded to get at them.
const GROUP_BYTES: usize = 6;
const LOADED_BYTES: usize = 8;
/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// How many characters so many bytes become.
pub(crate) const fn encoded_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Writes the standard, padded encoding of `bytes` into `text`, which must have its size.
pub(crate) fn encode(bytes: &[u8], text: &mut [u8]) {
    let groups = bytes.len().saturating_sub(LOADED_BYTES - GROUP_BYTES) / GROUP_BYTES;
    let (quick, rest) = text.split_at_mut(groups * LOADED_BYTES);
    let starts = (0..).step_by(GROUP_BYTES);
    for (start, characters) in starts.zip(quick.chunks_exact_mut(LOADED_BYTES)) {
        let loaded = bytes[start..].first_chunk().expect("two bytes follow the last group");
        characters.copy_from_slice(&encode_group(*loaded));
    }
    STANDARD.encode_slice(&bytes[groups * GROUP_BYTES..], rest).expect("the text has the encoded size");
}

/// The characters of the first six bytes.
fn encode_group(loaded: [u8; LOADED_BYTES]) -> [u8; LOADED_BYTES] {
    let bits = u64::from_be_bytes(loaded) >> 16;
    // The 48 bits move apart, in halves, until each byte has its six.
    let bits = (bits & 0x0000_ffff_ff00_0000) << 8 | (bits & 0x0000_0000_00ff_ffff);
    let bits = (bits & 0x00ff_f000_00ff_f000) << 4 | (bits & 0x0000_0fff_0000_0fff);
    let bits = (bits & 0x0fc0_0fc0_0fc0_0fc0) << 2 | (bits & 0x003f_003f_003f_003f);
    // A one in each byte that is at least `limit`: none exceeds 63, so no sum reaches into the next byte.
    let at_least = |limit: u64| ((bits + ONES * (128 - limit)) >> 7) & ONES;
    // From each range of the alphabet to the next: the step in the code beside the step in the value.
    let codes =
        bits + ONES * 65 + at_least(26) * 6 - at_least(52) * 75 - at_least(62) * 15 + at_least(63) * 3;
    codes.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bytes: &[u8]) -> String {
        let mut text = vec![0; encoded_bytes(bytes.len())];
        encode(bytes, &mut text);
        String::from_utf8(text).expect("the alphabet is ASCII")
    }

    #[test]
    fn every_character_of_the_alphabet_has_its_value() {
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bytes = STANDARD.decode(alphabet).expect("valid");
        assert_eq!(encoded(&bytes), alphabet);
    }

    proptest! {
        #[test]
        fn the_encoding_is_the_standard_one(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(encoded(&bytes), STANDARD.encode(&bytes));
        }
    }
}

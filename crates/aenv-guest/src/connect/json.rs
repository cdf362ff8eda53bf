//! The proto3 JSON mapping where serde's own differs: lenient base64, numbers as text, null as absent.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::Engine;
use serde::{Deserialize, Deserializer};

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Decodes standard or URL-safe base64, padded or not.
pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    let is_url_safe = text.bytes().any(|byte| matches!(byte, b'-' | b'_'));
    if is_url_safe {
        URL_SAFE.decode(text)
    } else {
        STANDARD.decode(text)
    }
}

/// For `#[serde(deserialize_with)]` on optional `bytes` fields.
pub(crate) fn optional_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    let text: Option<std::borrow::Cow<'de, str>> = Option::deserialize(deserializer)?;
    text.map(|text| decode_base64(&text).map_err(serde::de::Error::custom)).transpose()
}

/// For `#[serde(deserialize_with)]` on fields whose `null` means the default value.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A number or its text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Numeric {
    Number(serde_json::Number),
    Text(String),
}

impl Numeric {
    fn to_u32<E: serde::de::Error>(&self) -> Result<u32, E> {
        let whole = match self {
            // Proto3 JSON accepts 80.0 where 80 is meant.
            Self::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole_number)),
            Self::Text(text) => text.trim().parse().ok(),
        };
        whole
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| E::custom("expected an unsigned 32-bit number"))
    }
}

fn whole_number(number: f64) -> Option<u64> {
    let is_exact = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    // In range and whole: the conversion loses nothing.
    is_exact.then_some(number as u64)
}

/// For `#[serde(deserialize_with)]` on `uint32` fields: number or text, null is absent.
pub(crate) fn optional_u32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let value: Option<Numeric> = Option::deserialize(deserializer)?;
    value.map(|value| value.to_u32()).transpose()
}

/// For `#[serde(deserialize_with)]` on `uint32` fields whose absence means zero.
pub(crate) fn u32_or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    optional_u32(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(default, deserialize_with = "optional_bytes")]
        bytes: Option<Vec<u8>>,
        #[serde(default, deserialize_with = "u32_or_zero")]
        number: u32,
        #[serde(default, deserialize_with = "null_as_default")]
        words: Vec<String>,
    }

    fn sample(text: &str) -> Result<Sample, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn numbers_come_as_number_or_text() {
        for text in [r#"{"number":80}"#, r#"{"number":"80"}"#, r#"{"number":80.0}"#] {
            assert_eq!(sample(text).expect(text).number, 80);
        }
        for text in [r#"{"number":-1}"#, r#"{"number":4294967296}"#, r#"{"number":1.5}"#, r#"{"number":"x"}"#]
        {
            sample(text).expect_err(text);
        }
    }

    #[test]
    fn null_is_absent() {
        let sample = sample(r#"{"bytes":null,"number":null,"words":null}"#).expect("valid");
        assert_eq!((sample.bytes, sample.number, sample.words), (None, 0, vec![]));
    }

    #[test]
    fn bad_base64_is_an_error() {
        sample(r#"{"bytes":"a$b"}"#).expect_err("not base64");
    }

    proptest! {
        #[test]
        fn all_base64_dialects_decode(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let dialects = [
                general_purpose::STANDARD.encode(&bytes),
                general_purpose::STANDARD_NO_PAD.encode(&bytes),
                general_purpose::URL_SAFE.encode(&bytes),
                general_purpose::URL_SAFE_NO_PAD.encode(&bytes),
            ];
            for text in dialects {
                prop_assert_eq!(decode_base64(&text).expect("valid"), bytes.clone());
            }
        }
    }
}

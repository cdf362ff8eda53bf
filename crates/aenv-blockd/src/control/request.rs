//! What a frame says: which verb, with which arguments. Unknown words are refused by name.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::Value;

use crate::image::{ImageName, OpenArguments};
use crate::refusal::Refusal;

/// The version of the protocol.
pub(crate) const VERSION: u64 = 1;

/// A request, its verb not yet understood.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope {
    pub(crate) version: u64,
    pub(crate) id: u64,
    pub(crate) verb: String,
    pub(crate) arguments: Value,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Verb {
    Hello,
    Open(Box<OpenArguments>),
    Close(Close),
    Seal(Seal),
    Sealed(Sealed),
    Export(Export),
    Resize(Resize),
    Prefetch(Prefetch),
    Record(Record),
    Stat(Named),
    List(List),
    Shutdown(Shutdown),
}

/// Nothing at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// An image by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub(crate) name: ImageName,
}

/// Arguments of `list`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    #[serde(default)]
    pub(crate) behind: Option<ImageName>,
}

/// Arguments of `close`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Close {
    pub(crate) name: ImageName,
    pub(crate) discard: bool,
    #[serde(default)]
    pub(crate) force: bool,
}

/// Arguments of `seal`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seal {
    pub(crate) name: ImageName,
    pub(crate) seal_id: String,
    pub(crate) sealed_path: PathBuf,
    pub(crate) next_directory: PathBuf,
}

/// Arguments of `sealed`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sealed {
    pub(crate) name: ImageName,
    pub(crate) seal_id: String,
    #[serde(default)]
    pub(crate) digest: bool,
}

/// Arguments of `export`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    pub(crate) name: ImageName,
    pub(crate) path: PathBuf,
    pub(crate) compression: Option<Compression>,
    pub(crate) flatten: bool,
    #[serde(default)]
    pub(crate) plain: bool,
}

/// How an exported file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compression {
    /// As registries expect.
    Lz4,
}

/// Arguments of `resize`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resize {
    pub(crate) name: ImageName,
    pub(crate) size_bytes: u64,
}

/// Arguments of `prefetch`: ranges or a recording.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prefetch {
    pub(crate) name: ImageName,
    #[serde(default)]
    pub(crate) ranges: Option<Vec<(u64, u64)>>,
    #[serde(default)]
    pub(crate) trace_path: Option<PathBuf>,
}

/// Arguments of `record`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) name: ImageName,
    pub(crate) trace_path: PathBuf,
    pub(crate) seconds: u64,
}

/// Arguments of `shutdown`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shutdown {
    #[serde(default)]
    pub(crate) keep: bool,
}

impl Envelope {
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(frame).map_err(|error| Refusal::Malformed(error.to_string()))
    }

    /// Understands the verb.
    pub(crate) fn into_verb(self) -> Result<Verb, Refusal> {
        if self.version != VERSION {
            return Err(Refusal::Version(self.version));
        }
        let arguments = self.arguments;
        Ok(match self.verb.as_str() {
            "hello" => nothing(arguments, Verb::Hello)?,
            "open" => Verb::Open(Box::new(read(arguments)?)),
            "close" => Verb::Close(read(arguments)?),
            "seal" => Verb::Seal(read(arguments)?),
            "sealed" => Verb::Sealed(read(arguments)?),
            "export" => Verb::Export(read(arguments)?),
            "resize" => Verb::Resize(read(arguments)?),
            "prefetch" => Verb::Prefetch(read(arguments)?),
            "record" => Verb::Record(read(arguments)?),
            "stat" => Verb::Stat(read(arguments)?),
            "list" => Verb::List(read(arguments)?),
            "shutdown" => Verb::Shutdown(read(arguments)?),
            other => {
                let word: String = other.chars().take(40).collect();
                return Err(Refusal::Malformed(format!("unknown verb {word:?}")));
            }
        })
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, Refusal> {
    serde_json::from_value(arguments).map_err(|error| Refusal::argument(format!("bad arguments: {error}")))
}

fn nothing(arguments: Value, verb: Verb) -> Result<Verb, Refusal> {
    read::<Nothing>(arguments).map(|_| verb)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verb(text: &str) -> Result<Verb, Refusal> {
        Envelope::parse(text.as_bytes())?.into_verb()
    }

    #[test]
    fn test_unknown_words_are_refused() {
        let good = r#"{"version":1,"id":3,"verb":"close","arguments":{"name":"a","discard":false}}"#;
        assert!(matches!(verb(good), Ok(Verb::Close(Close { force: false, .. }))));
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("\"close\"", "\"clothe\""),
            ("\"name\":\"a\"", "\"name\":\"../a\""),
            ("\"discard\":false", "\"discard\":false,\"quietly\":true"),
            ("\"id\":3", "\"id\":-3"),
            ("\"id\":3", "\"id\":3,\"trace\":1"),
        ] {
            assert!(verb(&good.replace(from, to)).is_err(), "{to}");
        }
    }

    proptest! {
        #[test]
        fn test_any_bytes_are_a_verb_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Envelope::parse(&bytes).and_then(Envelope::into_verb);
        }

        #[test]
        fn test_any_arguments_are_a_verb_or_a_refusal(
            word in "hello|open|close|seal|sealed|stat|list|shutdown",
            name in "[a-z./]{0,4}",
            value in "null|1|true|\"\"|\\[\\]|\\{\\}",
        ) {
            let text = format!(
                r#"{{"version":1,"id":1,"verb":"{word}","arguments":{{"name":"{name}","discard":{value}}}}}"#
            );
            let _ = verb(&text);
        }
    }
}

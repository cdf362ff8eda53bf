//! The words of the command line. Owns what they mean; does no I/O.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the program prints when it does not understand its command line.
pub(crate) const USAGE: &str = "usage: aenv-blockd --state DIRECTORY --mount DIRECTORY --control SOCKET \
     [--cache DIRECTORY --cache-bytes N] [--exporter auto|fuse|ublk] [--read-ahead-kib N] [--flush-seconds N] \
     [--no-resend]";

/// How the program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Options {
    /// Directory of the device table.
    pub(crate) state: PathBuf,
    /// Where images appear as files.
    pub(crate) mount: PathBuf,
    /// The control socket.
    pub(crate) control: PathBuf,
    /// Where blocks of remote layers are kept.
    pub(crate) cache: Option<Cache>,
    /// How disks are shown.
    pub(crate) exporter: DiskExporter,
    /// How much the kernel reads ahead of a buffered read.
    pub(crate) read_ahead_kib: u32,
    /// How long an acknowledged write may wait until it is durable.
    pub(crate) flush_interval: Duration,
    /// Whether to live without handing unanswered requests to the next server, as on kernels before 6.9.
    pub(crate) without_resend: bool,
}

/// How disks are shown to processes. Memory images are always files of the mount, because monitors map them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DiskExporter {
    /// As block devices where the kernel can, else as files.
    Auto,
    /// As files of the mount.
    Fuse,
    /// As block devices.
    Ublk,
}

impl DiskExporter {
    /// Whether it matters what the kernel has.
    pub(crate) fn needs_driver(self) -> bool {
        self != Self::Fuse
    }
}

/// The block cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// How large it may become.
    pub(crate) bytes: u64,
}

/// Why a command line was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionsError {
    /// An option that does not exist.
    #[error("unknown option {0:?}")]
    Unknown(String),
    /// An option at the end without its value.
    #[error("option {0} needs a value")]
    MissingValue(&'static str),
    /// A value that does not parse.
    #[error("option {option} does not accept {value:?}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
    },
    /// An option that must be there.
    #[error("option {0} is missing")]
    Missing(&'static str),
    /// Options that only make sense together.
    #[error("--cache and --cache-bytes belong together")]
    HalfCache,
}

impl Options {
    /// Understands the words behind the program's name.
    pub(crate) fn parse(words: &[OsString]) -> Result<Self, OptionsError> {
        let (mut state, mut mount, mut control, mut cache, mut cache_bytes) = (None, None, None, None, None);
        let (mut read_ahead_kib, mut flush_seconds, mut without_resend) = (128, 5, false);
        let mut exporter = DiskExporter::Fuse;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = |option| words.next().ok_or(OptionsError::MissingValue(option));
            match word.to_str() {
                Some("--state") => state = Some(path("--state", value("--state")?)?),
                Some("--mount") => mount = Some(path("--mount", value("--mount")?)?),
                Some("--control") => control = Some(path("--control", value("--control")?)?),
                Some("--cache") => cache = Some(path("--cache", value("--cache")?)?),
                Some("--cache-bytes") => {
                    cache_bytes = Some(number("--cache-bytes", value("--cache-bytes")?, u64::MAX)?);
                }
                Some("--read-ahead-kib") => {
                    read_ahead_kib = number("--read-ahead-kib", value("--read-ahead-kib")?, 65_536)?;
                }
                Some("--flush-seconds") => {
                    flush_seconds = number("--flush-seconds", value("--flush-seconds")?, 3600)?;
                }
                Some("--exporter") => exporter = disk_exporter(value("--exporter")?)?,
                Some("--no-resend") => without_resend = true,
                _ => return Err(OptionsError::Unknown(word.to_string_lossy().into_owned())),
            }
        }
        let cache = match (cache, cache_bytes) {
            (None, None) => None,
            (Some(directory), Some(bytes)) => Some(Cache { directory, bytes }),
            _ => return Err(OptionsError::HalfCache),
        };
        Ok(Self {
            state: state.ok_or(OptionsError::Missing("--state"))?,
            mount: mount.ok_or(OptionsError::Missing("--mount"))?,
            control: control.ok_or(OptionsError::Missing("--control"))?,
            cache,
            exporter,
            read_ahead_kib: read_ahead_kib as u32,
            flush_interval: Duration::from_secs(flush_seconds.max(1)),
            without_resend,
        })
    }
}

fn path(option: &'static str, value: &OsString) -> Result<PathBuf, OptionsError> {
    let path = Path::new(value);
    // The path outlives working directories, and stands in a line of /proc/self/mountinfo.
    if path.is_absolute() && path.file_name().is_some() {
        return Ok(path.components().collect());
    }
    Err(OptionsError::BadValue { option, value: value.to_string_lossy().into_owned() })
}

fn disk_exporter(value: &OsString) -> Result<DiskExporter, OptionsError> {
    match value.to_str() {
        Some("auto") => Ok(DiskExporter::Auto),
        Some("fuse") => Ok(DiskExporter::Fuse),
        Some("ublk") => Ok(DiskExporter::Ublk),
        _ => {
            Err(OptionsError::BadValue { option: "--exporter", value: value.to_string_lossy().into_owned() })
        }
    }
}

fn number(option: &'static str, value: &OsString, limit: u64) -> Result<u64, OptionsError> {
    let bad = || OptionsError::BadValue { option, value: value.to_string_lossy().into_owned() };
    let number: u64 = value.to_str().and_then(|text| text.parse().ok()).ok_or_else(bad)?;
    if number > limit {
        return Err(bad());
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, OptionsError> {
        Options::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn test_three_paths_are_enough() {
        let options = parse("--state /s --mount /m/ --control /c").unwrap();
        assert_eq!((options.mount.to_str(), options.read_ahead_kib), (Some("/m"), 128));
        assert_eq!(options.flush_interval, Duration::from_secs(5));
        assert_eq!(options.exporter, DiskExporter::Fuse);
    }

    #[test]
    fn test_nothing_is_silently_accepted() {
        let paths = "--state /s --mount /m --control /c";
        for (line, refused) in [
            ("--state /s --mount /m".into(), OptionsError::Missing("--control")),
            (format!("{paths} --fast"), OptionsError::Unknown("--fast".into())),
            (format!("{paths} --cache /d"), OptionsError::HalfCache),
            (
                format!("{paths} --exporter nbd"),
                OptionsError::BadValue { option: "--exporter", value: "nbd".into() },
            ),
            (format!("{paths} --cache"), OptionsError::MissingValue("--cache")),
            (format!("{paths} --mount m"), OptionsError::BadValue { option: "--mount", value: "m".into() }),
            (
                format!("{paths} --read-ahead-kib 100000"),
                OptionsError::BadValue { option: "--read-ahead-kib", value: "100000".into() },
            ),
        ] {
            assert_eq!(parse(&line), Err(refused), "{line}");
        }
    }
}

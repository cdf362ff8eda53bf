//! The messages of `process.Process` as JSON. Types only; what they mean is decided in `service`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::connect::json;

/// What to run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ProcessConfig {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) cmd: String,
    #[serde(default, deserialize_with = "json::null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub(super) args: Vec<String>,
    #[serde(default, deserialize_with = "json::null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) envs: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
}

/// A terminal's size as asked for.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Size {
    #[serde(default, deserialize_with = "json::u32_or_zero")]
    pub(super) cols: u32,
    #[serde(default, deserialize_with = "json::u32_or_zero")]
    pub(super) rows: u32,
}

/// A terminal as asked for.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Pty {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) size: Size,
}

/// `Start`
#[derive(Debug, Default, Deserialize)]
pub(super) struct StartRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) process: ProcessConfig,
    pub(super) pty: Option<Pty>,
    pub(super) tag: Option<String>,
    pub(super) stdin: Option<bool>,
}

/// Which process a call means.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Selector {
    #[serde(default, deserialize_with = "json::optional_u32")]
    pub(super) pid: Option<u32>,
    pub(super) tag: Option<String>,
}

/// `Connect` and `CloseStdin`
#[derive(Debug, Default, Deserialize)]
pub(super) struct SelectRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) process: Selector,
}

/// `Update`
#[derive(Debug, Default, Deserialize)]
pub(super) struct UpdateRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) process: Selector,
    pub(super) pty: Option<Pty>,
}

/// Bytes for a process; one of the two is set.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ProcessInput {
    #[serde(default, deserialize_with = "json::optional_bytes")]
    pub(super) stdin: Option<Vec<u8>>,
    #[serde(default, deserialize_with = "json::optional_bytes")]
    pub(super) pty: Option<Vec<u8>>,
}

/// `SendInput`
#[derive(Debug, Default, Deserialize)]
pub(super) struct SendInputRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) process: Selector,
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) input: ProcessInput,
}

/// The data variant of `StreamInput`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct InputData {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) input: ProcessInput,
}

/// One message of `StreamInput`; one of the fields is set.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamInputRequest {
    pub(super) start: Option<SelectRequest>,
    pub(super) data: Option<InputData>,
    pub(super) keepalive: Option<Empty>,
}

/// A signal by name or number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum SignalName {
    Name(String),
    Number(i64),
}

/// `SendSignal`
#[derive(Debug, Default, Deserialize)]
pub(super) struct SendSignalRequest {
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub(super) process: Selector,
    pub(super) signal: Option<SignalName>,
}

/// A message without fields.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Empty {}

/// One entry of `List`.
#[derive(Debug, Serialize)]
pub(super) struct ProcessInfo<'a> {
    pub(super) config: &'a ProcessConfig,
    pub(super) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<&'a str>,
}

/// Any bytes are messages of these types, or not.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_messages(input: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<StartRequest>(input) {
        serde_json::to_vec(&message.process).expect("what was read can be written");
    }
    let _ = serde_json::from_slice::<UpdateRequest>(input);
    let _ = serde_json::from_slice::<SendInputRequest>(input);
    let _ = serde_json::from_slice::<StreamInputRequest>(input);
    let _ = serde_json::from_slice::<SendSignalRequest>(input);
}

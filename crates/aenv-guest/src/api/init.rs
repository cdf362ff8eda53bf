//! `POST /init`: the host gives the guest its clock, token, environment, defaults and identity. Callable again after
//! each restore. All of a request is checked before any of it takes effect.

use std::path::Path;

use hyper::header::HeaderValue;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{entropy, identity, timestamp, trust};
use crate::connect::json;
use crate::daemon::{has_token, UNAUTHORISED};
use crate::http::{self, Request, Response};
use crate::process::check_variable;
use crate::state::{Daemon, Environment, Settings};

/// The version of E2B's daemon whose behaviour ours has.
const CONTRACT_VERSION: &str = "0.6.13";
/// Longest token, name or path accepted.
const TEXT_BYTES_MAX: usize = 4096;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitRequest {
    access_token: Option<String>,
    env_vars: Option<Environment>,
    timestamp: Option<String>,
    default_user: Option<String>,
    default_workdir: Option<String>,
    #[serde(rename = "sandboxID")]
    sandbox_id: Option<String>,
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    hostname: Option<String>,
    #[serde(default, deserialize_with = "json::optional_bytes")]
    entropy: Option<Vec<u8>>,
    #[serde(rename = "machineID")]
    machine_id: Option<String>,
    #[serde(rename = "hyperloopIP")]
    hyperloop_ip: Option<Value>,
    volume_mounts: Option<Value>,
    ca_bundle: Option<String>,
}

/// Why an initialisation was refused.
#[derive(Debug, thiserror::Error)]
enum InitError {
    /// A value that cannot be used.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field's name on the wire.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel or the disk did not accept it.
    #[error("{field} could not be set: {source}")]
    Failed {
        /// The field's name on the wire.
        field: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Answers `POST /init`.
pub(crate) async fn post(daemon: &Daemon, request: Request) -> Response {
    if !has_token(daemon, request.headers()) {
        return http::error(StatusCode::UNAUTHORIZED, UNAUTHORISED);
    }
    let bytes = match http::read_body(request.into_body(), http::JSON_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return http::error(error.status(), error.to_string()),
    };
    let message = match parse(&bytes) {
        Ok(message) => message,
        Err(error) => return http::error(StatusCode::BAD_REQUEST, error.to_string()),
    };
    match check(daemon, &message).and_then(|moment| apply(daemon, message, moment)) {
        Ok(()) => accepted(),
        Err(error @ InitError::Invalid { .. }) => http::error(StatusCode::BAD_REQUEST, error.to_string()),
        Err(error @ InitError::Failed { .. }) => {
            http::error(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        }
    }
}

/// An empty body changes nothing and is a way to ask for the version.
fn parse(bytes: &[u8]) -> Result<InitRequest, serde_json::Error> {
    serde_json::from_slice(if bytes.is_empty() { b"{}" } else { bytes })
}

fn accepted() -> Response {
    let mut response = http::status(StatusCode::NO_CONTENT);
    response.headers_mut().insert("x-envd-version", HeaderValue::from_static(CONTRACT_VERSION));
    response
}

fn invalid(field: &'static str, reason: impl Into<String>) -> InitError {
    InitError::Invalid { field, reason: reason.into() }
}

/// Judges every field; gives the parsed timestamp.
fn check(daemon: &Daemon, message: &InitRequest) -> Result<Option<i128>, InitError> {
    refuse_unsupported(message)?;
    let texts = [
        ("accessToken", &message.access_token),
        ("defaultUser", &message.default_user),
        ("defaultWorkdir", &message.default_workdir),
        ("sandboxID", &message.sandbox_id),
        ("templateID", &message.template_id),
    ];
    for (field, text) in texts {
        let is_usable = |text: &String| text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control);
        if !text.as_ref().is_none_or(is_usable) {
            return Err(invalid(
                field,
                format!("must have no control characters and at most {TEXT_BYTES_MAX} bytes"),
            ));
        }
    }
    for (name, value) in message.env_vars.iter().flatten() {
        check_variable(name, value).map_err(|error| invalid("envVars", error.message))?;
    }
    if message.hostname.as_deref().is_some_and(|name| !identity::is_host_name(name)) {
        return Err(invalid("hostname", "must be dot-separated labels of letters, digits and hyphens"));
    }
    if message.machine_id.as_deref().is_some_and(|id| !identity::is_machine_id(id)) {
        return Err(invalid("machineID", "must be 32 lower-case hexadecimal digits"));
    }
    if message.entropy.as_ref().is_some_and(|seed| seed.len() > entropy::SEED_BYTES_MAX) {
        return Err(invalid("entropy", format!("must have at most {} bytes", entropy::SEED_BYTES_MAX)));
    }
    if let Some(bundle) = message.ca_bundle.as_deref().filter(|bundle| !bundle.is_empty()) {
        if !daemon.options.owns_machine {
            return Err(invalid("caBundle", "is possible only where the whole machine is ours"));
        }
        if !trust::is_bundle(bundle) {
            return Err(invalid("caBundle", "must be certificates in PEM form and nothing else"));
        }
    }
    let moment = message.timestamp.as_deref().filter(|text| !text.is_empty());
    moment
        .map(|text| timestamp::parse(text).ok_or_else(|| invalid("timestamp", "must be RFC 3339")))
        .transpose()
}

/// Fields of the contract that would change behaviour and that this daemon does not act on.
fn refuse_unsupported(message: &InitRequest) -> Result<(), InitError> {
    let fields = [("hyperloopIP", &message.hyperloop_ip), ("volumeMounts", &message.volume_mounts)];
    for (field, value) in fields {
        let is_empty = match value {
            None => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if !is_empty {
            return Err(invalid(field, "is not supported by this daemon"));
        }
    }
    Ok(())
}

fn apply(daemon: &Daemon, message: InitRequest, moment: Option<i128>) -> Result<(), InitError> {
    if let Some(moment) = moment {
        if daemon.settings().newest_timestamp.is_some_and(|newest| moment < newest) {
            return Ok(());
        }
    }
    // Entropy and clock before identity and token: nobody who is let in may see the old ones.
    if let Some(seed) = &message.entropy {
        entropy::reseed(seed).map_err(|source| InitError::Failed { field: "entropy", source })?;
    }
    // On a developer's machine the daemon is a guest itself: clock and names are not its own.
    if daemon.options.owns_machine {
        apply_to_machine(&message, moment)?;
    }
    let identity = {
        let mut settings = daemon.settings();
        let mut changed = settings.clone();
        adopt(&mut changed, message, moment);
        // Written down before it counts: a daemon that dies must not come back without its token.
        daemon
            .store
            .write_settings(&changed)
            .map_err(|source| InitError::Failed { field: "accessToken", source })?;
        *settings = changed;
        settings.identity.clone()
    };
    identity::write_files(&daemon.state_directory(), &identity)
        .map_err(|source| InitError::Failed { field: "sandboxID", source })
}

fn apply_to_machine(message: &InitRequest, moment: Option<i128>) -> Result<(), InitError> {
    if let Some(moment) = moment {
        set_clock(moment).map_err(|source| InitError::Failed { field: "timestamp", source })?;
    }
    if let Some(name) = &message.hostname {
        nix::unistd::sethostname(name)
            .map_err(|error| InitError::Failed { field: "hostname", source: error.into() })?;
    }
    if let Some(id) = &message.machine_id {
        identity::write_machine_id(id).map_err(|source| InitError::Failed { field: "machineID", source })?;
    }
    if let Some(bundle) = &message.ca_bundle {
        trust::install(Path::new("/"), bundle)
            .map_err(|source| InitError::Failed { field: "caBundle", source })?;
    }
    Ok(())
}

/// An absent field keeps its value; an empty one clears it.
fn adopt(settings: &mut Settings, message: InitRequest, moment: Option<i128>) {
    let filled = |text: String| Some(text).filter(|text| !text.is_empty());
    if let Some(token) = message.access_token {
        settings.access_token = filled(token);
    }
    if let Some(environment) = message.env_vars {
        settings.environment = environment;
    }
    if let Some(user) = message.default_user {
        settings.default_user = filled(user);
    }
    if let Some(directory) = message.default_workdir {
        settings.default_workdir = filled(directory);
    }
    let ids = [("E2B_SANDBOX_ID", message.sandbox_id), ("E2B_TEMPLATE_ID", message.template_id)];
    for (name, id) in ids {
        if let Some(id) = id {
            settings.identity.insert(name.to_owned(), id);
        }
    }
    settings.newest_timestamp = moment.or(settings.newest_timestamp);
}

fn set_clock(moment: i128) -> std::io::Result<()> {
    const BILLION: i128 = 1_000_000_000;
    let seconds = libc::time_t::try_from(moment.div_euclid(BILLION)).map_err(std::io::Error::other)?;
    let nanoseconds = i64::try_from(moment.rem_euclid(BILLION)).map_err(std::io::Error::other)?;
    let time = nix::sys::time::TimeSpec::new(seconds, nanoseconds);
    nix::time::clock_settime(nix::time::ClockId::CLOCK_REALTIME, time)?;
    Ok(())
}

/// Any bytes are an initialisation, or not; what is checked are its values.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_init(input: &[u8]) {
    if let Ok(message) = parse(input) {
        let _ = message.timestamp.as_deref().map(timestamp::parse);
        let _ = message.ca_bundle.as_deref().map(trust::is_bundle);
        let _ = message.hostname.as_deref().map(identity::is_host_name);
        let _ = message.machine_id.as_deref().map(identity::is_machine_id);
    }
}

//! Lines of JSON on standard error: an event in the past tense, and facts as fields.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// Something that a line can carry.
pub(crate) trait Fact {
    /// Its JSON form.
    fn value(&self) -> Value;
}

impl Fact for &str {
    fn value(&self) -> Value {
        Value::from(*self)
    }
}

impl Fact for String {
    fn value(&self) -> Value {
        Value::from(self.as_str())
    }
}

impl Fact for u64 {
    fn value(&self) -> Value {
        Value::from(*self)
    }
}

impl Fact for std::path::Path {
    fn value(&self) -> Value {
        Value::from(self.display().to_string())
    }
}

impl Fact for std::path::PathBuf {
    fn value(&self) -> Value {
        self.as_path().value()
    }
}

/// The fields of a line.
pub(crate) type Facts<'a> = &'a [(&'a str, &'a dyn Fact)];

/// What an operator wants in the story of the week.
pub(crate) fn info(event: &str, facts: Facts<'_>) {
    write("info", event, facts);
}

/// What we coped with.
pub(crate) fn warning(event: &str, facts: Facts<'_>) {
    write("warning", event, facts);
}

/// What somebody must look at.
pub(crate) fn error(event: &str, facts: Facts<'_>) {
    write("error", event, facts);
}

/// An error with its causes, as one sentence.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.ends_with(&own) {
            text = format!("{text}: {own}");
        }
        cause = error.source();
    }
    text
}

fn write(level: &str, event: &str, facts: Facts<'_>) {
    let mut line = Map::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    line.insert("time".into(), Value::from(now.as_secs_f64()));
    line.insert("level".into(), Value::from(level));
    line.insert("event".into(), Value::from(event));
    for (name, fact) in facts {
        line.insert((*name).into(), fact.value());
    }
    let text = format!("{}\n", JsonLine(&line));
    // Whoever closed our standard error does not want to hear.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

struct JsonLine<'a>(&'a Map<String, Value>);

impl fmt::Display for JsonLine<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self.0).map_err(|_| fmt::Error)?;
        formatter.write_str(&text)
    }
}

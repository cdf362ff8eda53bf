//! How often and how long a remote is asked: waits that grow and scatter, within one deadline.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant, SystemTime};

use super::{HeaderMap, Place};
use crate::error::{Misbehaviour, SourceError};

const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A remote that lies may have been a proxy with a bad moment, but not more often than this.
const MAX_FAULTS: u32 = 3;

/// How an attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another attempt would end the same.
    Final(SourceError),
    /// The answer was wrong in a way that an honest remote might be once.
    Fault(SourceError),
    /// No answer, or "later". The remote may have said when.
    Passing {
        /// What happened, for the message if it stays so.
        cause: String,
        /// How long the remote wants to be left alone.
        wait: Option<Duration>,
    },
}

impl Failure {
    pub(crate) fn passing(cause: impl Into<String>) -> Self {
        Self::Passing { cause: cause.into(), wait: None }
    }

    /// What a status means that brings no bytes.
    pub(crate) fn refused(place: &Place, status: u16, headers: &HeaderMap) -> Self {
        let place_name = place.to_string();
        match status {
            401 | 403 => Self::Final(SourceError::Denied { place: place_name, status }),
            404 | 410 => Self::Final(SourceError::NotFound { place: place_name }),
            408 | 425 | 429 | 500..=599 => Self::overloaded(status, headers),
            _ => Self::Fault(place.misbehaved(Misbehaviour::Status(status))),
        }
    }

    /// A remote that is overloaded says so, and perhaps for how long.
    pub(crate) fn overloaded(status: u16, headers: &HeaderMap) -> Self {
        Self::Passing { cause: format!("status {status}"), wait: retry_after(headers, SystemTime::now()) }
    }
}

/// When an answer is no longer of use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// What is left, or none when the time is over.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// Repeats a request until it succeeds, fails for good, or the time is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    /// The time for all attempts together.
    pub(crate) patience: Duration,
}

impl Attempts {
    pub(crate) fn run<T>(
        self,
        place: &Place,
        mut attempt: impl FnMut(Deadline) -> Result<T, Failure>,
    ) -> Result<T, SourceError> {
        let begin = Instant::now();
        let deadline = Deadline::after(self.patience);
        let mut backoff = Backoff::default();
        let mut faults = 0;
        loop {
            let (cause, wait) = match attempt(deadline) {
                Ok(value) => return Ok(value),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Fault(error)) => {
                    faults += 1;
                    if faults >= MAX_FAULTS {
                        return Err(error);
                    }
                    (error.to_string(), None)
                }
                Err(Failure::Passing { cause, wait }) => (cause, wait),
            };
            let wait = backoff.next_wait().max(wait.unwrap_or_default());
            if deadline.remaining().is_none_or(|left| wait >= left) {
                let waited = begin.elapsed();
                return Err(SourceError::Unavailable { place: place.to_string(), waited, cause });
            }
            std::thread::sleep(wait);
        }
    }
}

/// Waits that double, each scattered over its upper half so that many clients do not come back together.
#[derive(Default)]
struct Backoff {
    count: u32,
}

impl Backoff {
    fn next_wait(&mut self) -> Duration {
        let ceiling = SHORTEST_WAIT.saturating_mul(1 << self.count.min(16)).min(LONGEST_WAIT);
        self.count += 1;
        ceiling / 2 + ceiling.mul_f64(random_fraction() / 2.0)
    }
}

/// A number from 0 to 1. Each `RandomState` has a key of its own; this needs to scatter, not to be secret.
fn random_fraction() -> f64 {
    let number = RandomState::new().build_hasher().finish();
    number as f64 / u64::MAX as f64
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(text).ok()?.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place::configured("http://host/blob").unwrap()
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| backoff.next_wait()).collect();
        assert!(waits[0] >= SHORTEST_WAIT / 2 && waits[0] <= SHORTEST_WAIT);
        assert!(waits[1] >= SHORTEST_WAIT);
        assert!(waits.iter().all(|wait| *wait <= LONGEST_WAIT) && waits[39] >= LONGEST_WAIT / 2);
    }

    #[test]
    fn a_wait_beyond_the_deadline_is_not_begun() {
        let mut count = 0;
        let outcome: Result<(), _> = Attempts { patience: Duration::from_secs(20) }.run(&place(), |_| {
            count += 1;
            Err(Failure::Passing { cause: "status 429".to_owned(), wait: Some(Duration::from_secs(60)) })
        });
        assert!(matches!(outcome, Err(SourceError::Unavailable { .. })));
        assert_eq!(count, 1);
    }

    #[test]
    fn faults_are_forgiven_twice() {
        let mut count = 0;
        let outcome: Result<(), _> = Attempts { patience: Duration::from_secs(20) }.run(&place(), |_| {
            count += 1;
            Err(Failure::Fault(SourceError::invalid("x")))
        });
        assert!(matches!(outcome, Err(SourceError::InvalidReference { .. })));
        assert_eq!(count, 3);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, expected) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", None),
            ("-1", None),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_secs), "{text}");
        }
    }
}

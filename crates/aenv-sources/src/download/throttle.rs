//! Spreads bytes over time. Short bursts pass; what goes beyond them is waited for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const BURST: Duration = Duration::from_millis(100);

/// A rate that many share.
pub(super) struct Throttle {
    bytes_per_second: Option<u64>,
    /// When everything that was taken so far is paid for.
    paid: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, paid: Mutex::new(Instant::now()) }
    }

    /// Says how long to wait after these bytes.
    pub(super) fn charge(&self, bytes: u64) -> Duration {
        self.charge_at(bytes, Instant::now())
    }

    fn charge_at(&self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        *paid = (*paid).max(now) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let debt = *paid - now;
        if debt > BURST {
            debt
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_over_time() {
        let throttle = Throttle::new(Some(1000));
        let mut now = Instant::now();
        let begin = now;
        for _ in 0..50 {
            now += throttle.charge_at(100, now);
        }
        let seconds = (now - begin).as_secs_f64();
        assert!((4.8..5.2).contains(&seconds), "{seconds}");
        assert_eq!(Throttle::new(None).charge(u64::MAX), Duration::ZERO);
    }
}

//! When a daemon that ended is started again.

use std::time::{Duration, Instant};

/// A daemon that lived shorter than this has a problem that a restart will not solve at once.
const HEALTHY_LIFE: Duration = Duration::from_secs(1);
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);

/// When the daemon is started next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Restart {
    pub(super) at: Instant,
    delay: Duration,
}

impl Restart {
    /// Without waiting.
    pub(super) fn at_once(now: Instant) -> Self {
        Self { at: now, delay: Duration::ZERO }
    }

    /// At once after a healthy life; later and later after short ones.
    pub(super) fn after(self, life: Duration, now: Instant) -> Self {
        if life >= HEALTHY_LIFE {
            return Self::at_once(now);
        }
        let delay = (self.delay * 2).clamp(DELAY_FIRST, DELAY_MAX);
        Self { at: now + delay, delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_daemon_is_restarted_at_once() {
        let now = Instant::now();
        assert_eq!(Restart::at_once(now).after(HEALTHY_LIFE, now).at, now);
    }

    #[test]
    fn short_lives_wait_longer_and_longer_up_to_a_limit() {
        let now = Instant::now();
        let mut restart = Restart::at_once(now);
        let mut delays = Vec::new();
        for _ in 0..8 {
            restart = restart.after(Duration::ZERO, now);
            delays.push(restart.delay.as_millis());
        }
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(restart.after(HEALTHY_LIFE, now).after(Duration::ZERO, now).delay, DELAY_FIRST);
    }
}

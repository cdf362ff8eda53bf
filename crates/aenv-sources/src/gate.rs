//! Lets background work step back while a guest waits for bytes.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Background work goes on after this long even if guests never stop reading.
const LONGEST_YIELD: Duration = Duration::from_secs(2);

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` so that its reads yield to all others. A panic in it leaves the thread marked; such threads end.
pub fn in_background<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_BACKGROUND.replace(true);
    let outcome = work();
    IS_BACKGROUND.set(before);
    outcome
}

/// Whether this thread works in the background.
pub(crate) fn is_background() -> bool {
    IS_BACKGROUND.get()
}

/// Counts the fetches that guests wait for.
#[derive(Default)]
pub(crate) struct Gate {
    foreground: Mutex<usize>,
    is_quiet: Condvar,
}

impl Gate {
    /// Marks a fetch that somebody waits for, until the result is dropped.
    pub(crate) fn enter(&self) -> Foreground<'_> {
        *self.foreground.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Foreground(self)
    }

    /// Waits until nobody fetches in the foreground, but not for ever.
    pub(crate) fn step_back(&self) {
        let foreground = self.foreground.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_quiet.wait_timeout_while(foreground, LONGEST_YIELD, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A fetch in the foreground.
pub(crate) struct Foreground<'a>(&'a Gate);

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        let mut count = self.0.foreground.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            self.0.is_quiet.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn background_work_waits_for_the_foreground() {
        let gate = Gate::default();
        let has_ended = AtomicBool::new(false);
        let foreground = gate.enter();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                gate.step_back();
                has_ended.load(Ordering::SeqCst)
            });
            has_ended.store(true, Ordering::SeqCst);
            drop(foreground);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn the_mark_of_a_thread_ends_with_the_work() {
        assert!(in_background(|| in_background(is_background) && is_background()));
        assert!(!is_background());
    }
}

//! Undoes something at a time, unless it is undone before. On a thread of its own: what is frozen may hold up the rest of
//! the daemon.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A time at which something is undone.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    at: Option<Instant>,
    is_watched: bool,
}

impl Deadline {
    /// Undoes in `hold` from now. A second call moves the time.
    pub(super) fn set(&self, hold: Duration, undo: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.at = Some(Instant::now() + hold);
        if !std::mem::replace(&mut state.is_watched, true) {
            let shared = Arc::clone(&self.shared);
            std::thread::spawn(move || shared.watch(undo));
        }
        drop(state);
        self.shared.change.notify_all();
    }

    /// Leaves things as they are.
    pub(super) fn clear(&self) {
        self.shared.lock().at = None;
        self.shared.change.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, undo: impl FnOnce()) {
        let mut state = self.lock();
        while let Some(at) = state.at {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.change.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.at.take().is_some() {
            undo();
        }
        state.is_watched = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn it_is_undone_at_the_time_and_can_be_set_again() {
        let deadline = Deadline::default();
        for _ in 0..2 {
            let (sender, receiver) = mpsc::channel();
            deadline.set(Duration::from_millis(10), move || sender.send(()).expect("we wait"));
            receiver.recv_timeout(PATIENCE).expect("undone");
            while deadline.shared.lock().is_watched {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn cleared_in_time_it_is_not_undone() {
        let deadline = Deadline::default();
        let (sender, receiver) = mpsc::channel::<()>();
        deadline.set(PATIENCE, move || sender.send(()).expect("we wait"));
        deadline.clear();
        // The watcher gives its sender up without having used it.
        assert_eq!(receiver.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn setting_again_moves_the_time() {
        let deadline = Deadline::default();
        let (sender, receiver) = mpsc::channel();
        deadline.set(PATIENCE * 10, move || sender.send(()).expect("we wait"));
        deadline.set(Duration::ZERO, || panic!("the first one watches already"));
        receiver.recv_timeout(PATIENCE).expect("undone");
    }
}

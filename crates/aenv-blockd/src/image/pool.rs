//! Threads of one image, for work that may wait: for a network, for a disk to write out. Each image has its own, so
//! that one whose source is stuck does not hold up the others. They come when there is work and leave when idle.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread waits for more work.
const IDLE: Duration = Duration::from_secs(5);

/// Enough for the deepest call, far below the default.
const STACK_SIZE: usize = 256 << 10;

/// A piece of work. The buffer belongs to the thread and keeps its size from one piece to the next.
pub(crate) type Errand = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// A bounded set of threads and a queue. The queue is bounded by the kernel, which has so many requests under way.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    limit: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    errands: VecDeque<Errand>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// A pool of at most `limit` threads, none of which exists yet.
    pub(crate) fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new() }), limit }
    }

    /// Leaves work to the pool. It is done here and now only when not a single thread can be made.
    pub(crate) fn submit(&self, errand: Errand) {
        let mut queue = self.shared.lock();
        queue.errands.push_back(errand);
        if queue.idle >= queue.errands.len() {
            drop(queue);
            self.shared.wake.notify_one();
            return;
        }
        if queue.threads >= self.limit {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        let spawned =
            thread::Builder::new().name("image".into()).stack_size(STACK_SIZE).spawn(move || shared.work());
        if spawned.is_err() {
            self.cope_without_thread();
        }
    }

    fn cope_without_thread(&self) {
        let mut queue = self.shared.lock();
        queue.threads -= 1;
        let errand = if queue.threads == 0 { queue.errands.pop_front() } else { None };
        drop(queue);
        if let Some(errand) = errand {
            errand(&mut Vec::new());
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut buffer = Vec::new();
        while let Some(errand) = self.next() {
            // An errand answers its request when it is dropped, so that a panic costs an error and not a thread.
            let _ = catch_unwind(AssertUnwindSafe(|| errand(&mut buffer)));
        }
    }

    fn next(&self) -> Option<Errand> {
        let mut queue = self.lock();
        loop {
            if let Some(errand) = queue.errands.pop_front() {
                return Some(errand);
            }
            queue.idle += 1;
            let (again, wait) = self.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = again;
            queue.idle -= 1;
            if wait.timed_out() && queue.errands.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }

    // No code that can panic runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn test_work_that_waits_does_not_hold_up_other_work_below_the_limit() {
        let pool = Pool::new(2);
        let barrier = Arc::new(Barrier::new(2));
        let (done, results) = channel();
        for number in 0..2 {
            let (barrier, done) = (Arc::clone(&barrier), done.clone());
            pool.submit(Box::new(move |_| {
                barrier.wait();
                done.send(number).unwrap();
            }));
        }
        drop(done);
        let mut numbers: Vec<i32> = results.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
    }

    #[test]
    fn test_a_panic_leaves_the_pool_at_work() {
        let pool = Pool::new(1);
        let (done, results) = channel();
        pool.submit(Box::new(|_| panic!("an errand that fails on purpose")));
        pool.submit(Box::new(move |_| done.send(()).unwrap()));
        assert_eq!(results.recv(), Ok(()));
    }
}

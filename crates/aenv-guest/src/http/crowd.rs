//! Which connections wait for a request, and which of them goes when there is no room for another. Never ends one that
//! is being answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All open connections.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    waiting: Mutex<Waiting>,
}

/// Those without a request, the longest waiting first.
#[derive(Debug, Default)]
struct Waiting {
    arrivals: u64,
    seats: BTreeMap<u64, Arc<Seat>>,
}

/// One connection.
#[derive(Debug, Default)]
struct Seat {
    is_busy: AtomicBool,
    eviction: Notify,
}

impl Crowd {
    /// A place for a new connection, which waits for its first request.
    pub(super) fn join(self: &Arc<Self>) -> Place {
        let seat = Arc::<Seat>::default();
        let number = Mutex::new(self.lock().add(&seat));
        Place { crowd: Arc::clone(self), seat, number }
    }

    /// Ends the connection that has waited longest; `false` when all are being answered.
    pub(super) fn evict(&self) -> bool {
        let oldest = self.lock().seats.pop_first();
        oldest.map(|(_, seat)| seat.eviction.notify_one()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, seat: &Arc<Seat>) -> u64 {
        self.arrivals += 1;
        self.seats.insert(self.arrivals, Arc::clone(seat));
        self.arrivals
    }
}

/// A connection's place in the crowd; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Arc<Crowd>,
    seat: Arc<Seat>,
    number: Mutex<u64>,
}

impl Place {
    /// A request has come; the connection is safe until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        self.seat.is_busy.store(true, Ordering::Relaxed);
        self.leave();
        Answering { place: Arc::clone(self) }
    }

    /// Resolves when the connection must go.
    pub(super) async fn evicted(&self) {
        loop {
            self.seat.eviction.notified().await;
            // A request may have come in the meantime.
            if !self.seat.is_busy.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn leave(&self) {
        self.crowd.lock().seats.remove(&*self.number());
    }

    fn number(&self) -> MutexGuard<'_, u64> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering {
    place: Arc<Place>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let place = &self.place;
        place.seat.is_busy.store(false, Ordering::Relaxed);
        *place.number() = place.crowd.lock().add(&place.seat);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;

    fn is_evicted(place: &Place) -> bool {
        let evicted = std::pin::pin!(place.evicted());
        evicted.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_has_waited_longest_goes_first() {
        let crowd = Arc::<Crowd>::default();
        let [first, second] = [(); 2].map(|()| Arc::new(crowd.join()));
        drop(first.begin());
        assert!(crowd.evict());
        assert!(is_evicted(&second) && !is_evicted(&first));
        assert!(crowd.evict());
        assert!(is_evicted(&first));
        assert!(!crowd.evict());
    }

    #[test]
    fn who_is_being_answered_stays() {
        let crowd = Arc::<Crowd>::default();
        let place = Arc::new(crowd.join());
        let answering = place.begin();
        assert!(!crowd.evict());
        drop(answering);
        assert!(crowd.evict());
        // The next request was faster than the eviction.
        let _answering = place.begin();
        assert!(!is_evicted(&place));
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let crowd = Arc::<Crowd>::default();
        drop(Arc::new(crowd.join()));
        assert!(!crowd.evict());
        assert!(crowd.lock().seats.is_empty());
    }
}

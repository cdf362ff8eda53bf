//! Carries a process's frames to its subscribers. Bounded: the slowest subscriber slows the process down, but one that
//! stands still while others read is dropped. Without subscribers frames are discarded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{timeout_at, Instant};

/// Bytes that wait for a subscriber which is alone: it may slow the process down as much as it likes.
const QUEUED_BYTES_ALONE: usize = 64 << 10;
/// Bytes that wait for one of several subscribers, before it slows down the others.
const QUEUED_BYTES_SHARED: usize = 1 << 20;
/// How long a full subscriber may stand still before it is dropped in favour of the others.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// What a subscriber receives next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// An output frame.
    Frame(Bytes),
    /// The process's end; nothing follows.
    End(Bytes),
    /// The subscriber stood still for too long and lost frames; nothing follows.
    Dropped,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
    full_since: Option<Instant>,
    is_dropped: bool,
    arrival: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<u64, Queue>,
    subscriptions: u64,
    end: Option<Bytes>,
}

/// The frames of one process on their way to any number of subscribers.
#[derive(Debug, Default)]
pub(super) struct Output {
    state: Mutex<State>,
    /// Room appeared, or the set of subscribers changed.
    change: Notify,
}

/// What became of an offered frame.
enum Offer {
    /// Every subscriber has it.
    Taken,
    /// Somebody is full; at the given time, if any, it will be dropped.
    Full(Option<Instant>),
}

impl Output {
    /// Delivers a frame to all subscribers, waiting for those that are full.
    pub(super) async fn publish(&self, frame: Bytes) {
        loop {
            let mut change = std::pin::pin!(self.change.notified());
            // Registered before looking, or a change between looking and waiting would be missed.
            change.as_mut().enable();
            let offer = self.lock().offer(&frame, Instant::now());
            match offer {
                Offer::Taken => return,
                Offer::Full(None) => change.await,
                Offer::Full(Some(drop_at)) => {
                    let _ = timeout_at(drop_at, change).await;
                }
            }
        }
    }

    /// Ends all subscriptions, once they have read what is queued, with this frame.
    pub(super) fn close(&self, end: Bytes) {
        let mut state = self.lock();
        state.end = Some(end);
        state.queues.values().for_each(|queue| queue.arrival.notify_one());
        drop(state);
        self.change.notify_waiters();
    }

    /// Receives every frame published from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut state = self.lock();
        state.subscriptions += 1;
        let id = state.subscriptions;
        let queue = Queue::default();
        let arrival = Arc::clone(&queue.arrival);
        state.queues.insert(id, queue);
        drop(state);
        self.change.notify_waiters();
        Subscription { output: Arc::clone(self), id, arrival }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn offer(&mut self, frame: &Bytes, now: Instant) -> Offer {
        loop {
            let active = self.queues.values().filter(|queue| !queue.is_dropped).count();
            let limit = if active > 1 { QUEUED_BYTES_SHARED } else { QUEUED_BYTES_ALONE };
            let full = self.queues.values_mut().filter(|queue| !queue.is_dropped && queue.bytes >= limit);
            let dated = full.map(|queue| (*queue.full_since.get_or_insert(now), queue));
            let Some((full_since, queue)) = dated.min_by_key(|(full_since, _)| *full_since) else { break };
            let drop_at = full_since + STALL_LIMIT;
            match active > 1 {
                true if drop_at <= now => queue.drop_frames(),
                is_shared => return Offer::Full(is_shared.then_some(drop_at)),
            }
        }
        for queue in self.queues.values_mut().filter(|queue| !queue.is_dropped) {
            queue.push(frame.clone());
        }
        Offer::Taken
    }
}

impl Queue {
    fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
        self.arrival.notify_one();
    }

    fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        self.full_since = None;
        Some(frame)
    }

    fn drop_frames(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
        self.is_dropped = true;
        self.arrival.notify_one();
    }
}

/// One subscriber's place in the queue; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    output: Arc<Output>,
    id: u64,
    arrival: Arc<Notify>,
}

impl Subscription {
    /// Waits for the next frame. Cancel-safe.
    pub(super) async fn next(&self) -> Delivery {
        loop {
            if let Some(delivery) = self.poll() {
                return delivery;
            }
            self.arrival.notified().await;
        }
    }

    fn poll(&self) -> Option<Delivery> {
        let mut state = self.output.lock();
        let end = state.end.clone();
        let queue = state.queues.get_mut(&self.id)?;
        if queue.is_dropped {
            return Some(Delivery::Dropped);
        }
        match queue.pop() {
            Some(frame) => {
                drop(state);
                self.output.change.notify_waiters();
                Some(Delivery::Frame(frame))
            }
            None => end.map(Delivery::End),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.output.lock().queues.remove(&self.id);
        self.output.change.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Bytes {
        Bytes::from(vec![0; 32 << 10])
    }

    async fn is_pending(future: impl std::future::Future) -> bool {
        tokio::time::timeout(Duration::from_millis(1), future).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_listening_means_nothing_waits() {
        let output = Output::default();
        for _ in 0..1000 {
            output.publish(chunk()).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_slow_subscriber_slows_the_process_and_loses_nothing() {
        let output = Arc::new(Output::default());
        let subscription = output.subscribe();
        let publishing = tokio::spawn({
            let output = Arc::clone(&output);
            async move {
                for number in 0..100_u32 {
                    output.publish(Bytes::from(number.to_be_bytes().repeat(8 << 10))).await;
                }
                output.close(Bytes::new());
            }
        });
        tokio::time::sleep(STALL_LIMIT * 100).await;
        assert!(!publishing.is_finished());
        for number in 0..100_u32 {
            let Delivery::Frame(frame) = subscription.next().await else {
                panic!("frame {number} is missing")
            };
            assert_eq!(frame[..4], number.to_be_bytes());
        }
        assert_eq!(subscription.next().await, Delivery::End(Bytes::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_subscriber_is_dropped_in_favour_of_the_others() {
        let output = Arc::new(Output::default());
        let stalled = output.subscribe();
        let lively = output.subscribe();
        let counting = tokio::spawn(async move {
            let mut count = 0;
            while let Delivery::Frame(_) = lively.next().await {
                count += 1;
            }
            count
        });
        let began = Instant::now();
        for _ in 0..1000 {
            output.publish(chunk()).await;
        }
        output.close(Bytes::new());
        assert_eq!(counting.await.expect("the counter ends"), 1000);
        assert_eq!(began.elapsed().as_secs(), STALL_LIMIT.as_secs());
        assert_eq!(stalled.next().await, Delivery::Dropped);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_of_two_stalled_subscribers_stays() {
        let output = Arc::new(Output::default());
        let (first, second) = (output.subscribe(), output.subscribe());
        while !is_pending(output.publish(chunk())).await {}
        tokio::time::sleep(STALL_LIMIT * 2).await;
        assert!(is_pending(output.publish(chunk())).await);
        let deliveries = [first.next().await, second.next().await];
        assert_eq!(deliveries.iter().filter(|delivery| **delivery == Delivery::Dropped).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn leaving_frees_the_publisher() {
        let output = Arc::new(Output::default());
        let subscription = output.subscribe();
        while !is_pending(output.publish(chunk())).await {}
        drop(subscription);
        assert!(!is_pending(output.publish(chunk())).await);
    }

    #[tokio::test(start_paused = true)]
    async fn late_subscribers_see_the_end() {
        let output = Arc::new(Output::default());
        output.publish(chunk()).await;
        output.close(Bytes::from_static(b"end"));
        assert_eq!(output.subscribe().next().await, Delivery::End(Bytes::from_static(b"end")));
    }
}

//! Where blocking file system calls run: the runtime's blocking pool, behind a bound of our own, so that a file system
//! that hangs costs some workers and never the async thread.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, Semaphore, SemaphorePermit};

use super::memory;

/// Short calls that may be in the kernel at once; fewer than the runtime's blocking threads, which others use too.
const CALLS_MAX: usize = 12;
/// How long a caller waits for its turn before it is told that the guest is busy.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Transfers take long, so their turn may come late.
const TRANSFER_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// A transfer's buffers are on the heap and nothing in it recurses.
const TRANSFER_STACK_BYTES: usize = 256 << 10;

static CALLS: Semaphore = Semaphore::const_new(CALLS_MAX);

/// Why blocking work gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockingError {
    /// No worker became free in time.
    #[error("too many file operations at once; try again later")]
    Busy,
    /// The work panicked: a bug, confined to its request.
    #[error("file operation failed unexpectedly")]
    Panicked,
}

/// Runs one short blocking call.
pub(crate) async fn run<T, Work>(work: Work) -> Result<T, BlockingError>
where
    Work: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let turn = tokio::time::timeout(TURN_TIMEOUT, CALLS.acquire()).await.map_err(|_| BlockingError::Busy)?;
    let turn = turn.expect("the semaphore is never closed");
    let work = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, not with a caller that has lost patience.
        let _turn = turn;
        work()
    });
    work.await.map_err(|_| BlockingError::Panicked)
}

/// Runs a long blocking job on a thread of its own, so that slow clients never starve the short calls.
pub(crate) async fn run_long<T, Work>(slot: TransferSlot, work: Work) -> Result<T, BlockingError>
where
    Work: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("transfer".into()).stack_size(TRANSFER_STACK_BYTES);
    let started = thread.spawn(move || {
        let _slot = slot;
        // Nobody listens any more when the client has gone; the work is done all the same.
        let _ = sender.send(work());
    });
    started.map_err(|_| BlockingError::Busy)?;
    receiver.await.map_err(|_| BlockingError::Panicked)
}

/// A place among the long transfers. What the transfer needed goes back to the kernel some time after its end.
#[derive(Debug)]
pub(crate) struct TransferSlot {
    runtime: Handle,
    _permit: SemaphorePermit<'static>,
}

impl Drop for TransferSlot {
    fn drop(&mut self) {
        memory::release_soon(&self.runtime);
    }
}

/// Waits for a place among the long transfers.
pub(crate) async fn transfer_slot(slots: &'static Semaphore) -> Result<TransferSlot, BlockingError> {
    let permit = tokio::time::timeout(TRANSFER_TURN_TIMEOUT, slots.acquire()).await;
    let permit = permit.map_err(|_| BlockingError::Busy)?.expect("the semaphore is never closed");
    Ok(TransferSlot { runtime: Handle::current(), _permit: permit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_stays_with_its_caller() {
        let outcome = run(|| panic!("a bug")).await;
        assert!(matches!(outcome, Err::<(), _>(BlockingError::Panicked)));
        assert_eq!(run(|| 7).await.expect("the next call works"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_never_gets_its_turn_is_refused() {
        static SLOTS: Semaphore = Semaphore::const_new(1);
        let held = transfer_slot(&SLOTS).await.expect("free");
        assert!(matches!(transfer_slot(&SLOTS).await, Err(BlockingError::Busy)));
        drop(held);
        drop(transfer_slot(&SLOTS).await.expect("free again"));
    }

    #[tokio::test]
    async fn a_long_job_gives_its_slot_back() {
        static SLOTS: Semaphore = Semaphore::const_new(1);
        let slot = transfer_slot(&SLOTS).await.expect("free");
        assert_eq!(run_long(slot, || 7).await.expect("done"), 7);
        let slot = transfer_slot(&SLOTS).await.expect("free again");
        assert!(matches!(run_long(slot, || panic!("a bug")).await, Err::<(), _>(BlockingError::Panicked)));
        drop(transfer_slot(&SLOTS).await.expect("a panic gives it back too"));
    }
}
